"""Refresh the matrix's Python packages from package indexes."""
