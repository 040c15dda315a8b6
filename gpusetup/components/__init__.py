"""What people ask for, one module each: how it is asked for, what it brings, what changes, what roles are told."""
