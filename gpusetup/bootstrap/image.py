"""The end of an image: what belongs to this one machine goes, and the first boot of each copy goes on from there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpusetup.bootstrap.config import ETC
from gpusetup.bootstrap.record import write_whole
from gpusetup.drive.runner import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.bootstrap.config import Config

PER_BOOT = Path("/var/lib/cloud/scripts/per-boot/50-gpusetup")
_START = "#!/bin/sh\nexec /usr/local/lib/gpusetup/launcher boot\n"
_OURS = (
    "var/lib/gpusetup/first-boot",
    "var/lib/gpusetup/bootstrap",
    "var/lib/gpusetup/bundle",
    "etc/gpusetup/callback.token",
)
_SYSTEM = ("var/lib/systemd/random-seed",)
_CACHES = (("apt-get", "clean"), ("dnf", "clean", "packages"), ("zypper", "clean"))


def seal(config: Config, log: Callable[[str], None], root: Path = Path("/")) -> None:
    """Clean this machine for copies of its disk; safe to repeat.

    SSH host keys are left to cloud-init, which makes new ones for each new instance: without keys nobody could log in
    to switch this machine off.
    """
    for argv in (*_CACHES, ("cloud-init", "clean", "--logs", "--seed")):
        if shutil.which(argv[0]):
            done = run(list(argv), env=os.environ, deadline=300)
            if not done.ok:
                log(f"{' '.join(argv)}: {done.err.strip()}")
    for name in (*_OURS, *_SYSTEM):
        _remove(root / name)
    _forget_machine_id(root)
    start = root / PER_BOOT.relative_to("/")
    start.parent.mkdir(parents=True, exist_ok=True)
    write_whole(start, _START.encode(), 0o755)
    # Last: from here on the machine is a copy. Reports need a token, which is no part of an image.
    left = replace(config, stage="", callback="")
    write_whole(root / (ETC / "bootstrap.json").relative_to("/"), msgspec.json.encode(left) + b"\n", 0o600)
    os.sync()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _forget_machine_id(root: Path) -> None:
    """Empty, not absent: systemd makes a new one, and does not take the boot for the first of a fresh system."""
    own, bus = root / "etc/machine-id", root / "var/lib/dbus/machine-id"
    write_whole(own, b"", 0o444)
    if bus.exists() and not bus.is_symlink():
        bus.unlink()
        bus.symlink_to("/etc/machine-id")
