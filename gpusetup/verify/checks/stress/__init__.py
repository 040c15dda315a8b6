"""Minutes as asked: whether it stays so under load."""
