"""Find out who holds the package managers' locks, without taking any of them."""

import fcntl
import os
import struct
from typing import Any, Dict, Optional

from . import commands

Holder = Dict[str, Any]

FILES = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
    "/var/lib/rpm/.rpm.lock",
    "/usr/lib/sysimage/rpm/.rpm.lock",
)
PID_FILES = (
    "/run/dnf.pid",
    "/run/yum.pid",
    "/run/zypp.pid",
    "/var/cache/dnf/metadata_lock.pid",
    "/var/cache/dnf/download_lock.pid",
    "/var/lib/rpm/rpmdb_lock.pid",
)
_FLOCK = "hhqqi4x"


def holder(root: str = "/") -> Optional[Holder]:
    """Return the holder of the first held lock as {"file", "pid", "command"}, None when all are free."""
    for path in FILES:
        pid = _of_lock(os.path.join(root, path.lstrip("/")))
        if pid is not None:
            return {"file": path, "pid": pid, "command": _command(pid)}
    for path in PID_FILES:
        pid = _of_pid_file(os.path.join(root, path.lstrip("/")))
        if pid is not None:
            return {"file": path, "pid": pid, "command": _command(pid)}
    return None


def _of_lock(path: str) -> Optional[int]:
    """Return the process that holds a lock file: by F_GETLK, or from /proc/locks where that needs root."""
    try:
        handle = os.open(path, os.O_RDWR)
    except PermissionError:
        return _listed(path)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    finally:
        os.close(handle)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _listed(path: str) -> Optional[int]:
    """Return the process that /proc/locks names for a file; stat needs no permission to open it."""
    try:
        there = os.stat(path)
        with open("/proc/locks", encoding="utf-8", errors="replace") as handle:
            lines = [line.split() for line in handle]
    except OSError:
        return None
    key = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    for pieces in lines:
        if len(pieces) >= 6 and "->" not in pieces and pieces[5] == key and pieces[4].isdigit():
            return int(pieces[4])
    return None


def _of_pid_file(path: str) -> Optional[int]:
    """Return the living process that a pid file names."""
    try:
        with open(path, encoding="utf-8") as handle:
            pid = int(handle.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if os.path.exists(f"/proc/{pid}") else None


def _command(pid: int) -> Optional[str]:
    """Return a process's command line with secrets masked: for a script, its name alone would be the interpreter's."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as handle:
            words = handle.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as named:
            return commands.mask(words)[:200] or named.read().strip()
    except OSError:
        return None
