"""Waiting for others: cloud-init's own work and whoever holds the package manager, each with a deadline."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from gpusetup.model.status import Problem

__all__ = ["cloud_init_problem", "package_lock_problem", "wait_for_cloud_init", "wait_for_packages"]

_LOCKS = ("var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock")
_TICK = 1.0


def wait_for_packages(deadline: float, root: Path = Path("/"), tick: float = _TICK) -> Problem | None:
    """Wait until nobody holds apt's and dpkg's locks; dnf waits for its own."""
    end = time.monotonic() + deadline
    while (held := _held(root)) is not None:
        if time.monotonic() >= end:
            return package_lock_problem(held[0], held[1], deadline)
        time.sleep(tick)
    return None


def wait_for_cloud_init(deadline: float, run: Path = Path("/run/cloud-init"), tick: float = _TICK) -> Problem | None:
    """Wait until cloud-init has finished this boot; one that is absent or switched off is not waited for."""
    end = time.monotonic() + deadline
    while run.is_dir() and not (run / "result.json").exists() and not (run / "disabled").exists():
        if time.monotonic() >= end:
            return cloud_init_problem(deadline)
        time.sleep(tick)
    return None


def package_lock_problem(path: str, holder: str, deadline: float) -> Problem:
    """Say who is in the way."""
    return Problem(
        reference="GS-745",
        message=f"{holder} holds {path}; waited {deadline:.0f} s for it",
        hint="let it end, or see what it waits for",
        exit=5,
    )


def cloud_init_problem(deadline: float) -> Problem:
    """Say that cloud-init does not end."""
    return Problem(
        reference="GS-746",
        message=f"cloud-init has not finished within {deadline:.0f} s",
        hint="see what it waits for: cloud-init status --long",
        exit=5,
    )


def _held(root: Path) -> tuple[str, str] | None:
    """Return the first lock that somebody holds, and who."""
    for name in _LOCKS:
        path = root / name
        if not path.exists():
            continue
        with path.open("r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                return f"/{name}", _holder(path)
    return None


def _holder(path: Path) -> str:
    inode = f":{path.stat().st_ino}"
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[5].endswith(inode) and int(words[4]) > 0 and int(words[4]) != os.getpid():
                name = Path(f"/proc/{words[4]}/comm").read_text(encoding="utf-8").strip()
                return f"{name} (process {words[4]})"
    return "another process"
