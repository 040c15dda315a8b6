"""Level full: the machine is as fast as its parts allow."""
