"""Newer rows for the matrix, out of what vendors and indexes publish for programs; nothing is put in force here."""
