"""A folder for what checks write: gone with the verification, however that ends."""

import contextlib
import fcntl
import glob
import os
import shutil
import subprocess
import tempfile
import time
from typing import IO, Iterator, cast

PREFIX = "gpusetup-verify-"
LEFT_OVER = 24 * 3600
"""Seconds after which a folder that nobody holds was left behind."""
_TIDY = 'cat >/dev/null; for pause in 0 1 4 25; do sleep $pause; rm -rf -- "$0" && exit; done'
"""Waits until whoever holds its input is gone. A compiler's second half can outlive the first and write on."""


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """Give a folder that is ours as long as we hold it.

    SIGKILL leaves us no time: somebody else, who sees that we are gone, removes it. Where that one ends with us, as
    when power is cut, the next verification does.
    """
    sweep()
    path = tempfile.mkdtemp(prefix=PREFIX)
    handle = os.open(path, os.O_RDONLY)
    tidier = _tidier(path)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the folder's age has to do
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)
        cast("IO[bytes]", tidier.stdin).close()
        tidier.wait()


def _tidier(path: str) -> "subprocess.Popen[bytes]":
    """Start what removes a folder once we are gone; a signal to our session does not reach it."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _TIDY, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def sweep() -> None:
    """Remove our own user's folders that are older than a day and that no living verification holds."""
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), PREFIX + "*")):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(handle)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > LEFT_OVER:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
