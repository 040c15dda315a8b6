"""Under two minutes: whether the machine is as fast as its parts allow."""
