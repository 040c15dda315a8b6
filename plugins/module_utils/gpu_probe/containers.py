"""Container runtimes and how they are told of the GPU."""

from typing import Any, Dict

from .host import LiveHost

_RUNTIMES = (
    ("docker", ("/usr/bin/dockerd", "/usr/local/bin/dockerd", "/snap/bin/docker")),
    ("containerd", ("/usr/bin/containerd", "/usr/local/bin/containerd")),
    ("podman", ("/usr/bin/podman",)),
    ("crio", ("/usr/bin/crio", "/usr/local/bin/crio")),
)
_SETTINGS = (
    ("docker", "/etc/docker/daemon.json"),
    ("containerd", "/etc/containerd/config.toml"),
    ("containerd", "/etc/containerd/conf.d/99-nvidia.toml"),
    ("crio", "/etc/crio/conf.d/99-nvidia.conf"),
    ("crio", "/etc/crio/conf.d/99-nvidia.toml"),
    ("crio", "/etc/crio/crio.conf.d/99-nvidia.toml"),
)


def collect(host: LiveHost, packages: Dict[str, Any]) -> Dict[str, Any]:
    """Return runtimes, the toolkit's version, who is configured for it, and the CDI files."""
    configured = []
    for runtime, path in _SETTINGS:
        if runtime not in configured and "nvidia" in (
            host.read(path, "containers.configured", keep=_nvidia_lines) or ""
        ):
            configured.append(runtime)
    cdi = [folder + "/" + name for folder in ("/etc/cdi", "/var/run/cdi") for name in host.names(folder, "nvidia*")]
    if cdi:
        configured.append("podman")  # it needs nothing else
    toolkit = packages.get("nvidia-container-toolkit") or packages.get("nvidia-container-toolkit-base")
    installed = toolkit if toolkit and toolkit["state"] == "installed" else None
    return {
        "runtimes": [name for name, paths in _RUNTIMES if any(host.exists(path) for path in paths)],
        "toolkit": installed["version"] if installed else None,
        "configured": configured,
        "cdi": cdi,
    }


def _nvidia_lines(text: str) -> Any:
    """Keep of a runtime's settings only the lines that name NVIDIA's runtime."""
    return "".join(line for line in text.splitlines(True) if "nvidia" in line)
