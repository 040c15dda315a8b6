"""Taking hosts out of service and back, by their verifications."""
