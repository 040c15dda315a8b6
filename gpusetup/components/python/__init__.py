"""Python environments: their requirements, and what of them a host lacks."""
