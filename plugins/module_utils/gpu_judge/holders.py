"""What of NVIDIA's own software, and of ours, holds GPUs open: it is stopped for a while, and is nobody's work."""

WATCHERS = (
    "gpusetup-gpu-textfile.timer",
    "dcgm-exporter.service",
    "nvidia-dcgm-exporter.service",
    "nvidia-dcgm.service",
    "nvsm.service",
)
"""They look at every GPU, and are stopped while one is cut."""
FOR_RESET = (*WATCHERS, "nvidia-persistenced.service")
FOR_EXCHANGE = (*FOR_RESET, "nvidia-imex.service", "nvidia-fabricmanager.service")
"""All of them, in the order in which they are stopped before the driver's modules are exchanged."""
PROCESSES = ("nvidia-persiste", "nv-hostengine", "dcgm-exporter", "nvsm", "nv-fabricmanage", "nvidia-imex")
"""Their programs, as the kernel keeps names: fifteen letters."""
