"""A temporary folder for the checks, removed with the verification, however that ends."""

import contextlib
import fcntl
import glob
import os
import shutil
import subprocess
import tempfile
import time
from typing import IO, Iterator, List, cast

PREFIX = "gpusetup-verify-"
LEFT_OVER = 24 * 3600
"""Seconds after which a folder that no process holds counts as left over."""
_TIDY = 'cat >/dev/null; for pause in 0 1 4 25; do sleep $pause; rm -rf -- "$0" && exit; done'
"""Waits until its input is closed. It removes repeatedly, because a killed compiler's children can still write."""


def places() -> List[str]:
    """Return the folders in which ours may be: the usual one, and one for where hardened hosts let no program run."""
    return [tempfile.gettempdir(), os.path.expanduser("~")]


def _runs_programs(path: str) -> bool:
    """Return whether a program that is compiled there may run."""
    return os.access(path, os.W_OK) and not os.statvfs(path).f_flag & os.ST_NOEXEC


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """Yield a new folder, locked as long as it is in use.

    After SIGKILL another process removes it; if that one dies too, as on a power cut, the next verification does.
    """
    sweep()
    path = tempfile.mkdtemp(prefix=PREFIX, dir=next(filter(_runs_programs, places()), None))
    handle = os.open(path, os.O_RDONLY)
    tidier = _tidier(path)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: only the folder's age protects it
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)
        cast("IO[bytes]", tidier.stdin).close()
        tidier.wait()


def _tidier(path: str) -> "subprocess.Popen[bytes]":
    """Start the process that removes the folder once we are gone; signals to our session do not reach it."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _TIDY, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def sweep() -> None:
    """Remove this user's folders that are older than a day and not locked by a running verification."""
    for path in [path for place in places() for path in glob.glob(os.path.join(glob.escape(place), PREFIX + "*"))]:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(handle)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > LEFT_OVER:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
