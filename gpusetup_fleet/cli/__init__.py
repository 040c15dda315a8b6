"""The commands of this package; their names are in the table of `gpusetup.cli`."""
