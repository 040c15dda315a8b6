"""Packages of gpusetup for people who have no checkout: `./dev release [KIND …]`."""
