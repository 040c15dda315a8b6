"""The command line: the only room that prints or exits."""
