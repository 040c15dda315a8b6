"""One proven NVIDIA stack for these hosts: resolved with reasons, installed with Ansible, verified on the GPU."""

__version__ = "0.1.0"
