"""The pipeline of a change: look, plan, free, change in waves, verify, remember what is left. Prints nothing."""
