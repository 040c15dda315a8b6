"""Find newer rows for the matrix in what vendors and indexes publish for programs; they are only candidates."""
