"""What starts the process of a shard: Ansible itself, or an engine that people already run."""
