"""What the lab needs of the machine it runs on, and how to get it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from tests.lab.places import LabError
from tests.lab.process import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# program → the Debian or Ubuntu package that has it
PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "zstd": "zstd",
    "gpg": "gnupg",
    "apt-ftparchive": "apt-utils",
    "dpkg-deb": "dpkg",
    "createrepo_c": "createrepo-c",
    "rpmbuild": "rpm",
    "depmod": "kmod",
}
DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def why_not() -> str | None:
    """Why no lab can run here, or None; what `apt-get` can install is no reason."""
    if os.geteuid() != 0:
        return "the lab needs root (mounts, network namespaces, containers)"
    absent = missing()
    if absent and not shutil.which("apt-get"):
        return f"the lab needs {', '.join(absent)}, and there is no apt-get to install them with"
    with open("/proc/filesystems") as stream:
        if "\toverlay\n" not in stream.read() and run(["modprobe", "overlay"], check=False).returncode:
            return "the kernel has no overlay file system"
    if run(["ip", "netns", "list"], check=False).returncode and "ip" not in absent:
        return "the kernel has no network namespaces"
    return None


def missing(more: Mapping[str, str] | None = None) -> list[str]:
    """Packages to install before a lab can be built."""
    programs = {**PROGRAMS, **(more or {})}
    packages = {package for program, package in programs.items() if not shutil.which(program)}
    if not os.path.exists(DEBIAN_KEYRING):
        packages.add("debian-archive-keyring")
    return sorted(packages)


def prepare(more: Mapping[str, str] | None = None) -> None:
    """Install what is missing, with the programs in MORE; a machine that cannot is told so in one sentence."""
    reason = why_not()
    if reason:
        raise LabError(reason)
    install(missing(more))
    if missing(more):
        raise LabError(f"apt-get succeeded but {', '.join(missing(more))} are still absent")


def install(packages: Iterable[str]) -> None:
    """Install packages by apt-get, without what they recommend."""
    packages = sorted(packages)
    if not packages:
        return
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    by_hand = f"install by hand: apt-get install {' '.join(packages)}"
    try:
        run(["apt-get", "update", "-q"], timeout=300, env=env)
        options = ["-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        run(["apt-get", "install", *options, *packages], timeout=900, env=env)
    except LabError as error:
        raise LabError(f"{error}\n\nthe tests' tools could not be installed; {by_hand}") from None
