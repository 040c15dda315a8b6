"""Compare hosts: what most of them have, and which ones differ."""
