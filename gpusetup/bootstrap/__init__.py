"""The first boot of a new machine: a state machine that resumes after each reboot until the stack is verified."""
