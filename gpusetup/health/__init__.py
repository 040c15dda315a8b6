"""Health over time: what was found before, leaving service and coming back, and what a finding needs."""
