"""From an error message or a sick host to the cause and the fix."""
