"""Find the cause of an error message or a sick host, and the fix."""
