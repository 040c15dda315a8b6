"""Observed against desired: ordered actions, the lock, what will be rebooted, removed and downloaded."""
