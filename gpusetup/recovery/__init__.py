"""What a finding needs, by the word of the driver and of NVIDIA's catalogue: one table for all who tell or do it."""
