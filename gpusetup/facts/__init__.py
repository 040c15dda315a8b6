"""What hosts are: look at this machine, at a captured one, or read what was seen before; group hosts that are alike."""
