"""The state machine on a new instance: resumes after each reboot until the stack is proven."""
