"""Which rpm packages the stand-in repositories hold for SUSE: NVIDIA's opensuse15 directory, and what openSUSE Leap itself has."""

from functools import partial
from typing import Any

from tests.lab.repository.catalog import DRIVERS, NO_PROPRIETARY_FROM, Package

KERNEL = "6.4.0-150600.23.47-default"
VERSION = "6.4.0-150600.23.47.2"
"""A package's version has one number more than the kernel's release."""
NEXT_VERSION = "6.4.0-150600.23.60.1"
BRANCHES = ("580", "595")
G07_FROM = 590
SIGNED = ("580",)
BUILT_WITH = "6.4.0_150600.23.25"
"""An older kernel of the same service pack."""


def _rpm(name: str, version: str, **words: Any) -> Package:
    return Package(name=name, version=version, arch="x86_64", **words)


def drivers() -> list[Package]:
    """The generation in a name says which branches it is for; user space and module find each other by version."""
    return [package for branch in BRANCHES for version in DRIVERS[branch] for package in _driver(branch, version)]


def _driver(branch: str, version: str) -> list[Package]:
    generation, other = ("G07", "G06") if int(branch) >= G07_FROM else ("G06", "G07")
    full = f"{version}-1"
    same = f"{{}} = {full}".format
    package = partial(_rpm, version=full, driver=version)
    open_name, closed_name = f"nvidia-open-driver-{generation}", f"nvidia-driver-{generation}"
    module = f"lab-nvidia-module-{generation}"
    dkms = {"dkms_name": "nvidia", "rpm": "yes"}
    found = [
        package("libnvidia-ml"),
        package("libnvidia-cfg"),
        package("nvidia-modprobe"),
        package("nvidia-persistenced", content="persistenced", depends=(same("libnvidia-cfg"),)),
        package(f"nvidia-common-{generation}", content="suse_common", conflicts=(f"nvidia-common-{other}",), depends=(same("nvidia-modprobe"), same(module))),
        package(f"nvidia-compute-{generation}", content="libraries", conflicts=(f"nvidia-compute-{other}",), depends=(same("libnvidia-ml"), same(f"nvidia-common-{generation}"))),
        package(f"nvidia-compute-utils-{generation}", content="smi", conflicts=(f"nvidia-compute-utils-{other}",), depends=(same(f"nvidia-compute-{generation}"), same("nvidia-persistenced"))),
        package(open_name, content="dkms", extra={"open": "-open", **dkms}, depends=("dkms",), provides=(same(module),), conflicts=(closed_name,)),
    ]  # fmt: skip
    if int(branch) < NO_PROPRIETARY_FROM:
        found.append(
            package(closed_name, content="dkms", extra={"open": "", **dkms}, depends=("dkms",), provides=(same(module),), conflicts=(open_name,))
        )  # fmt: skip
    if branch in SIGNED:
        words = {"open": "-open", "kernel": KERNEL, "place": "weak-updates/updates", "signer": "Lab stand-in for SUSE"}
        found.append(
            _rpm(
                f"{open_name}-signed-cuda-kmp-default", f"{version}_k{BUILT_WITH}-1", driver=version, extra=words,
                content="prebuilt_module", provides=(same(module),), conflicts=(open_name, closed_name),
            )
        )  # fmt: skip
    return found


def tools() -> list[Package]:
    """NVIDIA's directory for SUSE has DKMS too."""
    return [_rpm("dkms", "3.2.1-1", content="dkms_tool", depends=("gcc", "make"))]


def base_system() -> list[Package]:
    """What the distribution itself offers; libzypp refuses to work where nothing provides glibc."""
    several = ("multiversion(kernel)",)
    return [
        _rpm("kernel-default", VERSION, provides=several),
        _rpm("kernel-default-devel", VERSION, content="suse_kernel_devel", extra={"kernel": KERNEL}, provides=several),
        _rpm("kernel-default-devel", NEXT_VERSION, provides=several), _rpm("glibc", "2.38-150600.14.32.1"),
        _rpm("bash", "4.4-150400.25.22", provides=("/bin/sh", "/usr/bin/sh")),
        _rpm("openSUSE-release", "15.6-lp156.420.1", provides=("distribution-release",)), _rpm("gcc", "7-3.9.1"),
        _rpm("make", "4.2.1-7.3.2"),
    ]  # fmt: skip


PRESENT = ("kernel-default", "glibc", "bash", "openSUSE-release")
"""In rpm's database of a new host: what they stand for is really there."""
