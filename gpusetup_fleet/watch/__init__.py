"""The live view of GPUs: one connection to each host; shown on the terminal, printed, or written as CSV."""
