"""Who holds a package manager's lock."""

import fcntl
import os
import struct
import time

from .failure import HostFailure

_FLOCK = "hhqqi4x"


def holder(path):
    """Return the process that holds a lock file as {"pid", "command"}, None when nobody does."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            return None
        return {"pid": pid, "command": _command(pid)}
    finally:
        os.close(handle)


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return stream.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:200] or "unknown"
    except OSError:
        return "unknown"


def pid_file_holder(path):
    """Return the living process that a pid file names (dnf), None without one."""
    try:
        with open(path) as stream:
            pid = int(stream.read().strip())
    except (OSError, ValueError):
        return None
    return {"pid": pid, "command": _command(pid)} if os.path.exists(f"/proc/{pid}") else None


def wait_until_free(find, seconds, tell):
    """Wait until `find()` sees no holder; name it while waiting and when the time is over."""
    deadline = time.time() + seconds
    while True:
        found = find()
        if not found:
            return
        who = "process {pid} ({command})".format(**found)
        if time.time() > deadline:
            raise HostFailure(
                "GS-453",
                "another program keeps the package manager's lock",
                who,
                f"waited {int(seconds)} s",
                "let it finish (automatic upgrades at first boot take minutes), then repeat the same command",
            )
        tell("lock", "waiting for the package manager's lock, held by " + who)
        time.sleep(1)
