"""Benchmarks: figures and ratios to read. Their times are not tests."""
