"""Export GPU metrics as a textfile of node_exporter: `python3 -m gpu_textfile.look --folder FOLDER`.

Installed on hosts together with `gpu_read`. Standard library only, Python 3.6 syntax. The metric names are those of
nvidia_gpu_exporter, so the same alert rules apply to both.
"""
