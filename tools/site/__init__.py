"""The documentation as a site of plain files."""
