"""Benchmarks: ratios and figures to read, not tests with a clock."""
