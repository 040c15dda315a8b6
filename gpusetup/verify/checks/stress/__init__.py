"""Level stress: the machine stays correct and cool under minutes of load."""
