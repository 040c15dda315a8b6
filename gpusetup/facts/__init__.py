"""Facts of hosts: from this machine, a capture, a fleet or a file; and groups of equal hosts."""
