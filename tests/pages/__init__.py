"""Documentation whose commands are run: pages say what the program says today."""
