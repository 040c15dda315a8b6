"""NVIDIA's and gpusetup's own services that hold GPUs open: they can be stopped, since they are no user's work."""

WATCHERS = (
    "gpusetup-gpu-textfile.timer",
    "dcgm-exporter.service",
    "nvidia-dcgm-exporter.service",
    "nvidia-dcgm.service",
    "nvsm.service",
)
"""Services that poll every GPU; they are stopped while a GPU is partitioned (MIG)."""
FOR_RESET = (*WATCHERS, "nvidia-persistenced.service")
FOR_EXCHANGE = (*FOR_RESET, "nvidia-imex.service", "nvidia-fabricmanager.service")
"""All of them, in the order in which they are stopped before the driver's modules are replaced."""
PROCESSES = ("nvidia-persiste", "nv-hostengine", "dcgm-exporter", "nvsm", "nv-fabricmanage", "nvidia-imex")
"""Prefixes of their process names, which the kernel cuts to fifteen characters."""
