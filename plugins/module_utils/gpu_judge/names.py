"""Names that host and controller must know alike."""

import re

NOUVEAU_FILE = "/etc/modprobe.d/gpusetup-nouveau.conf"
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "generated", "indirect")
"""What systemd says of a unit that starts by itself."""


def python_name(name: str) -> str:
    """Return a Python package's name as package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_fabric_manager(name: str) -> bool:
    """Say whether a package brings the fabric manager, which starts only beside exactly its own driver."""
    return "fabricmanager" in name or "fabric-manager" in name
