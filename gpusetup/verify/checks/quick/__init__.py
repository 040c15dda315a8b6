"""Level quick: what the driver, the kernel and PCI report, in seconds and without a CUDA context."""
