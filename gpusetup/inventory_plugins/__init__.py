"""Plugins that Ansible loads by path; each is an adapter over the package."""
