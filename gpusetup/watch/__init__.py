"""The live view: one connection to each host, what its GPUs do at this moment, drawn, printed or kept as CSV."""
