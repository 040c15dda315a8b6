"""Hosts that ask for their lock themselves, and the collector that they ask and report to."""
