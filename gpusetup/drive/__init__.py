"""Ansible as a process: arguments, run directory, event stream, progress."""
