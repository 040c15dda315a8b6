"""Checks of GPU hosts: observations, judged against what each machine should reach."""
