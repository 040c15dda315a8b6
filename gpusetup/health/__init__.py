"""Health over time: the history of verifications, and taking hosts out of service and back."""
