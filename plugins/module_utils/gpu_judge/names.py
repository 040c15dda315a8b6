"""Names on which host and controller must agree."""

from typing import Iterable

NOUVEAU_FILE = "/etc/modprobe.d/gpusetup-nouveau.conf"
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "generated", "indirect")
"""systemd's states of units that start at boot or on demand."""
CDI_UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service", "gpusetup-cdi.service")
"""What describes the GPUs to container runtimes: two of newer toolkits, one of ours."""
MONITORING_UNITS = (
    "nvidia-dcgm.service",
    "nvidia-dcgm-exporter.service",
    "nvidia_gpu_exporter.service",
    "prometheus-node-exporter.service",
    "prometheus-node_exporter.service",
    "gpusetup-gpu-textfile.timer",
)
"""The units of everything that exports GPU metrics."""

DESKTOP_UNITS = "gpusetup-desktop-"
"""Prefix of the desktops' units."""

IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
IMEX_UNIT = "/etc/systemd/system/gpusetup-imex-channels.service"
_IMEX_UNIT = """# Written by gpusetup: device files do not outlive a boot, and IMEX channels are device files.
[Unit]
Description=IMEX channels
After=systemd-modules-load.service nvidia-persistenced.service
Before=nvidia-imex.service slurmd.service kubelet.service docker.service containerd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'major=$$(sed -n "s/^ *\\([0-9]*\\) nvidia-caps-imex-channels$$/\\1/p" /proc/devices); \
  [ -n "$$major" ] || {{ echo "the driver that is loaded has no IMEX channels" >&2; exit 1; }}; \
  mkdir -p /dev/nvidia-caps-imex-channels; \
  for number in $$(seq 0 {last}); do file=/dev/nvidia-caps-imex-channels/channel$$number; \
  [ -e $$file ] || mknod -m 0666 $$file c $$major $$number || exit 1; done'

[Install]
WantedBy=multi-user.target
"""


def imex_nodes(nodes: Iterable[str]) -> str:
    """Return the node list of an IMEX domain; it must be identical on every machine, IMEX compares them."""
    return "".join(node + "\n" for node in nodes)


def imex_unit(channels: int) -> str:
    """Return the unit that creates the channels' device files."""
    return _IMEX_UNIT.format(last=channels - 1)
