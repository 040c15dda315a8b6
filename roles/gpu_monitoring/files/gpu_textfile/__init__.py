"""What the GPUs tell as a textfile of node_exporter.

It is put on hosts with the reader of NVIDIA's library beside it: `python3 -m gpu_textfile.look --folder FOLDER`.
Standard library only, Python 3.6 syntax. The names are those of nvidia_gpu_exporter: the same rules hold for both.
"""
