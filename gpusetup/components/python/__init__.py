"""Python environments: their requirements, their size, and what a host lacks of them."""
