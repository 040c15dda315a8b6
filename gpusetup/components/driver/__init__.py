"""The driver: sources and names of its packages, and how its kernel modules are built."""
