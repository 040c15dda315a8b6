"""What the GPUs of a host do at this moment, for whoever watches or exports it. Standard library only, Python 3.6.

`reader.open_reader()` asks NVIDIA's management library, or nvidia-smi where that cannot be loaded; `agent` reads again
and again and writes a line of JSON each time. Nothing here changes anything, and nothing needs root.
"""
