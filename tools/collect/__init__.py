"""What refreshes the matrix from package indexes."""
