"""Whether the machine is as fast as its parts allow."""
