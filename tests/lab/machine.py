"""What the lab needs of the machine it runs on, and how to get it."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.lab.places import LabError
from tests.lab.process import run
from tests.programs import DEBIAN_KEYRING, FOREIGN, HOSTS, install, lacking

BINFMT = Path("/proc/sys/fs/binfmt_misc")


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
    packages = set(lacking({**HOSTS, **(more or {})}).values())
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


def emulate(architecture: str) -> None:
    """Have the kernel run programs of another architecture with qemu."""
    prepare(FOREIGN)
    if not (BINFMT / "register").exists():
        run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT])
    name = {"arm64": "qemu-aarch64"}[architecture]
    if not (BINFMT / name).exists():
        (BINFMT / "register").write_bytes(Path(f"/usr/lib/binfmt.d/{name}.conf").read_bytes())
