"""The documents that flow through gpusetup, as frozen Structs."""
