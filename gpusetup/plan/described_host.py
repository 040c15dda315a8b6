"""Stand-in facts for a host of which only distribution, CPU and perhaps GPUs are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.components.base import brought_driver
from gpusetup.matrix.gpus import find_gpu, gpu_by_id
from gpusetup.model.facts import HostFacts
from gpusetup.model.facts_machine import Gpu, Storage
from gpusetup.model.request import Request

if TYPE_CHECKING:
    from gpusetup.matrix.load import Matrix

UNKNOWN_KERNEL = "unknown"
CODENAMES = {
    "debian11": "bullseye", "debian12": "bookworm", "debian13": "trixie",
    "ubuntu20.04": "focal", "ubuntu22.04": "jammy", "ubuntu24.04": "noble", "ubuntu26.04": "resolute",
}  # fmt: skip
_DEBIAN_LIKE = ("debian", "ubuntu")
_SUSE_LIKE = ("sles", "opensuse")


def described_host(request: Request) -> HostFacts:
    """Return facts with the distribution and CPU of a request, and nothing else."""
    label = request.os or ""
    match = re.fullmatch(r"([a-z-]+)([\d.]*)", label)
    name, version = match.groups() if match else ("", "")
    family = "debian" if name in _DEBIAN_LIKE else "suse" if name.startswith(_SUSE_LIKE) else "redhat"
    codename = CODENAMES.get(label)
    archive = [codename, f"{codename}-updates", f"{codename}-security"] if codename else []
    document: dict[str, Any] = {
        "os": {"id": name, "version_id": version, "codename": codename, "name": label,
               "family": family},
        "arch": request.arch or "x86_64",
        "kernel": {"running": UNKNOWN_KERNEL, "next": UNKNOWN_KERNEL, "next_basis": "not a host"},
        "boot": {"id": None, "time": None},
        "gpus": [],
        "nvswitch": None,
        "driver": None,
        "nouveau": {"loaded": False, "blacklisted": False, "in_initramfs": None},
        "secure_boot": None,
        "firmware": {"uefi": False, "setup_mode": None, "lockdown": None, "signatures_enforced": False},
        "virtualisation": {"kind": "unknown", "cloud": None, "vendor": None, "product": None, "laptop": False,
                           "container": None, "wsl": False, "driver_refused": None},
        "cuda": {},
        "containers": {},
        "smi": None,
        "display": {},
        "packages": {
            "manager": {"debian": "apt", "suse": "zypper"}.get(family, "dnf"),
            "automatic_upgrades": {"enabled": False, "excludes_nvidia": False},
            "sources": [{"file": "", "uri": "", "suites": [suite], "components": ["main"]} for suite in archive],
        },
    }  # fmt: skip
    return msgspec.convert(document, HostFacts)


def as_delivered(host: HostFacts) -> HostFacts:
    """Return a host as before gpusetup: its hardware, kernel, Pythons, runtimes and somebody else's driver.

    Without what gpusetup installed, and without passing states: a full disk, a running program, a broken database.
    """
    bare = described_host(Request(os=host.os.label, arch="aarch64" if host.arch == "aarch64" else "x86_64"))
    kept = {
        name: getattr(host, name)
        for name in (
            "simulated", "os", "kernel", "gpus", "nvswitch", "secure_boot", "firmware", "virtualisation", "rdma",
            "containers", "display", "pythons", "interpreter",
        )
    }  # fmt: skip
    if not brought_driver(host):
        kept |= {"driver": host.driver, "smi": host.smi, "dkms": host.dkms}
        kept["services"] = {name: unit for name, unit in host.services.items() if name == "gridd"}
    if host.storage is not None:
        kept["storage"] = Storage(p2pdma=host.storage.p2pdma)
    return msgspec.structs.replace(bare, **kept)


def with_gpus_of(facts: HostFacts, request: Request, matrix: Matrix) -> HostFacts:
    """Return a host without GPUs with those of a request: an image is made for them."""
    if facts.gpus:
        return facts
    gpus = tuple(_described_gpu(text, matrix) for text in request.gpus)
    return msgspec.structs.replace(facts, gpus=gpus)


def _described_gpu(text: str, matrix: Matrix) -> Gpu:
    names = find_gpu(matrix, text).names
    product = next(gpu for gpu in matrix.gpus.gpus if gpu.name in names)
    pci_id = text if gpu_by_id(matrix, text) else next(iter(product.ids), text)
    return Gpu(
        address="", pci_id=pci_id, subsystem="", kind="0302", name=product.name, arch=product.arch,
        compute_capability=product.cc, bound=None,
    )  # fmt: skip
