"""Seals a machine as an image: removes its identity; each copy continues the bootstrap at its first boot."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpusetup.bootstrap.config import ETC
from gpusetup.drive.rundir import write_whole
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
    """Clean this machine so that its disk can be copied; safe to repeat.

    SSH host keys stay, since nobody could log in without them; cloud-init makes new ones on each copy.
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
    # Last, since it ends the stage `image`. No reports: their token is not part of an image.
    left = replace(config, stage="", callback="")
    write_whole(root / (ETC / "bootstrap.json").relative_to("/"), msgspec.json.encode(left) + b"\n", 0o600)
    os.sync()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _forget_machine_id(root: Path) -> None:
    """Empty machine-id: systemd then makes a new id; if absent, it would treat the boot as a system's very first."""
    own, bus = root / "etc/machine-id", root / "var/lib/dbus/machine-id"
    write_whole(own, b"", 0o444)
    if bus.exists() and not bus.is_symlink():
        bus.unlink()
        bus.symlink_to("/etc/machine-id")
