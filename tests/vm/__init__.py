"""Virtual machines with a kernel, a boot loader and cloud-init of their own: see tests/lab/README.md."""
