"""The driver: where its packages come from, what they are called, how its kernel modules come."""
