"""Hosts that fetch their lock themselves, and the collector that serves offers and takes their reports."""
