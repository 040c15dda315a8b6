"""Hosts against each other: what most of them have, and who does not."""
