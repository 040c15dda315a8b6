"""What the gpu_* modules share: changing a host carefully. Standard library only, Python 3.6 and newer."""
