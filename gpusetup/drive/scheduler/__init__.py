"""Take nodes out of a scheduler's hands before they change, and give them back afterwards."""
