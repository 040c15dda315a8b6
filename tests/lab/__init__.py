"""The lab: throw-away Debian hosts with real systemd, apt and SSH, simulated GPUs and local package repositories."""
