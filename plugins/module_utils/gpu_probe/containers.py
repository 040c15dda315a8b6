"""Container runtimes and how they are configured for GPUs."""

import re
from typing import Any, Dict, List

from .host import LiveHost, lines_with

_RUNTIMES = (("docker", "dockerd"), ("containerd", "containerd"), ("podman", "podman"), ("crio", "crio"))
_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")  # Debian's dockerd is in sbin
SETTINGS = {
    "docker": ("/etc/docker/daemon.json",),
    "containerd": ("/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"),
    # Not /etc/crio/conf.d, the default of some nvidia-ctk versions: CRI-O does not read it.
    "crio": ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/99-nvidia.toml"),
}
"""The settings files that can name NVIDIA's runtime: the main file, then the drop-in if the runtime supports one."""
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_LIBCUDA = re.compile(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)")


def collect(host: LiveHost, packages: Dict[str, Any]) -> Dict[str, Any]:
    """Return the runtimes, the toolkit's version, the configured runtimes, the CDI files and their driver versions."""
    ours = lines_with("nvidia")
    configured = [
        name for name, paths in SETTINGS.items() if any(host.read(p, "containers.configured", keep=ours) for p in paths)
    ]
    cdi = described(host)
    if cdi:
        configured.append("podman")  # it needs nothing else
    toolkit = packages.get("nvidia-container-toolkit") or packages.get("nvidia-container-toolkit-base")
    installed = toolkit if toolkit and toolkit["state"] == "installed" else None
    return {
        "runtimes": [
            name for name, program in _RUNTIMES if any(host.exists(f"{folder}/{program}") for folder in _FOLDERS)
        ],
        "toolkit": installed["version"] if installed else None,
        "configured": configured,
        "cdi": list(cdi),
        "cdi_drivers": sorted({version for versions in cdi.values() for version in versions}),
    }


def described(host: LiveHost) -> Dict[str, List[str]]:
    """Return {CDI file of NVIDIA devices: driver versions that it names}."""
    paths = [folder + "/" + name for folder in CDI_FOLDERS for name in host.names(folder, "nvidia*")]
    return {
        path: sorted(set(_LIBCUDA.findall(host.read(path, keep=lines_with(r"libcuda\.so")) or ""))) for path in paths
    }
