"""Read the current metrics of a host's GPUs, for watching and exporting. Standard library only, Python 3.6.

`reader.Reader` asks NVIDIA's management library, or nvidia-smi if that cannot be loaded; `agent` reads repeatedly and
writes a line of JSON each time. Nothing here changes the host or needs root.
"""
