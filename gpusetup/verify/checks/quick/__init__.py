"""Seconds, no CUDA context: what the driver, the kernel and PCI say."""
