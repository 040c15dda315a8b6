"""All checks, in one folder per level."""
