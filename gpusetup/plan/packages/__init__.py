"""Package names: one module per family, chosen by distribution and source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.plan.packages.debian_archive import DebianArchive
from gpusetup.plan.packages.nvidia_deb import NvidiaDebian, NvidiaUbuntu
from gpusetup.plan.packages.nvidia_dnf import NvidiaDnf
from gpusetup.plan.packages.ubuntu_archive import UbuntuArchive

if TYPE_CHECKING:
    from gpusetup.model.facts import OperatingSystem
    from gpusetup.plan.packages.base import Family

__all__ = ["family_for"]

_MODULAR = frozenset({"rhel8", "rhel9", "amzn2023", "kylin10", "kylin11"})


def family_for(system: OperatingSystem, source: str, folder: str | None) -> Family | None:
    """Return how packages are named here; None where neither the distribution nor NVIDIA has any."""
    if source == "distro":
        if system.id == "debian":
            return DebianArchive()
        return UbuntuArchive() if system.id == "ubuntu" else None
    if folder is None:
        return None
    if folder.startswith("ubuntu"):
        return NvidiaUbuntu()
    if folder.startswith("debian"):
        return NvidiaDebian()
    if folder.startswith(("rhel", "fedora", "amzn", "azl", "kylin")):
        return NvidiaDnf(modular=folder in _MODULAR)
    return None
