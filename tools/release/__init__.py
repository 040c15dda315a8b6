"""Build packages of gpusetup for users without a checkout: `./dev release [KIND …]`."""
