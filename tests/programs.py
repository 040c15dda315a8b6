"""The programs that the stages of `./dev test` run, each with the Debian package that has it, and their installation.

A stage installs what it lacks before it begins, so the tests find the same programs on a bare machine as on one that had many.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.lab.places import LabError
from tests.lab.process import run

HARDWARE = re.compile(r"GPU|NVIDIA|nvidia|CUDA|(?:in|for) this stack")
"""What the reason of a skip names where every program could be installed: hardware, or a stack that lacks what is tested."""
POLICY = Path("/usr/sbin/policy-rc.d")
"""Debian asks it whether an installed service may start."""
UNITS = Path("/etc/systemd/system")
DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

SSH = {"ssh": "openssh-client", "ssh-keygen": "openssh-client"}
RPM = {"dnf": "dnf", "createrepo_c": "createrepo-c", "rpmbuild": "rpm", "gpg": "gnupg", "zypper": "zypper"}
BROWSER = {"chromium": "chromium"}
QEMU = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "genisoimage": "genisoimage"}
HOSTS = {
    **SSH, "mmdebstrap": "mmdebstrap", "systemd-nspawn": "systemd-container", "ip": "iproute2", "zstd": "zstd",
    "gpg": "gnupg", "apt-ftparchive": "apt-utils", "dpkg-deb": "dpkg", "createrepo_c": "createrepo-c",
    "rpmbuild": "rpm", "depmod": "kmod",
}  # fmt: skip
"""What makes the lab's hosts and their package repositories."""
FOREIGN = {"qemu-aarch64-static": "qemu-user-static", "arch-test": "arch-test"}
"""What runs hosts of another architecture."""
VIRTUAL = {**QEMU, "sfdisk": "fdisk", "mkfs.ext4": "e2fsprogs"}
"""What virtual machines need beside that."""

STAGES: dict[str, dict[str, str]] = {
    "lint": {"git": "git"},
    "unit": {
        **SSH,
        **RPM,
        "apt-ftparchive": "apt-utils",
        "cc": "gcc libc6-dev",
        "cloud-init": "cloud-init",
        "etcd": "etcd-server",
        "etcdctl": "etcd-client",
        "fish": "fish",
        "genisoimage": "genisoimage",
        "git": "git",
        "groff": "groff-base",
        "ip": "iproute2",
        "kubectl": "kubernetes-client",
        "lz4": "lz4",
        "nginx": "nginx-light",
        "promtool": "prometheus",
        "ps": "procps",
        "sshd": "openssh-server",
        "systemd-analyze": "systemd",
        "zsh": "zsh",
        "zstd": "zstd",
    },
    "package": {"git": "git"},
    "pages": {**SSH, "git": "git"},
    "site": {**BROWSER, "git": "git"},
    "lab": {**HOSTS, **VIRTUAL, **RPM, **BROWSER, "buildah": "buildah", "cc": "gcc libc6-dev", "git": "git"},
    "vm": {**HOSTS, **VIRTUAL},
}
STAGES |= {
    "drive": STAGES["unit"], "tools": STAGES["unit"], "fuzz": STAGES["unit"], "sanity": STAGES["package"],
    "lab-long": STAGES["lab"], "lab-slow": STAGES["lab"], "lab-arm": STAGES["lab"], "faults": STAGES["lab"], "vm-faults": STAGES["vm"],
}  # fmt: skip
STAGES |= {"molecule": STAGES["lab"]}


def which(program: str) -> str | None:
    """Where a program is; those of the administrator too, which not every PATH names."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")


def lacking(programs: Mapping[str, str]) -> dict[str, str]:
    """Those of the programs that this machine does not have."""
    return {program: package for program, package in programs.items() if which(program) is None}


def installs() -> bool:
    """Whether this process can install packages here."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def here(stages: Iterable[str]) -> list[str]:
    """The programs of these stages that this machine has already."""
    return sorted({program for stage in stages for program in STAGES.get(stage, {}) if which(program)})


def prepare(stage: str) -> list[str]:
    """Install what a stage lacks; return the programs that could not be had."""
    programs = STAGES.get(stage, {})
    before = lacking(programs)
    if before and installs():
        with contextlib.suppress(LabError):
            install({package for packages in before.values() for package in packages.split()})
        for packages in sorted(set(lacking(programs).values())):  # one that cannot be had stops no other
            with contextlib.suppress(LabError):
                install(packages.split())
    return sorted(lacking(programs))


def install(packages: Iterable[str]) -> None:
    """Install packages by apt-get, without what they recommend; services that come with them do not start, now or later."""
    packages = sorted(packages)
    if not packages:
        return
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    by_hand = f"install by hand: apt-get install {' '.join(packages)}"
    try:
        run(["apt-get", "update", "-q"], timeout=300, env=env)
        options = ["-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        with _no_service_starts():
            run(["apt-get", "install", *options, *packages], timeout=900, env=env)
    except LabError as error:
        raise LabError(f"{error}\n\nthe tests' tools could not be installed; {by_hand}") from None


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Nothing that a package brings starts, at its installation or with the machine: tests start what they try themselves."""
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    before = set(UNITS.glob("*.wants/*"))
    try:
        yield
    finally:
        if ours:
            POLICY.unlink(missing_ok=True)
        for link in set(UNITS.glob("*.wants/*")) - before:
            link.unlink(missing_ok=True)


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends in this time."""
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(pid)
