"""Checks on the GPU, judged against what that machine should reach."""
