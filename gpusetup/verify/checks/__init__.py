"""Every check, one file each, by level."""
