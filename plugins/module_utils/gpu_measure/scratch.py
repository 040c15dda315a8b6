"""A folder for what checks write: gone with the verification, or with the next one when nobody could tidy up."""

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
import time
from typing import Iterator

PREFIX = "gpusetup-verify-"
LEFT_OVER = 24 * 3600
"""Seconds after which a folder that nobody holds was left behind."""


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """Give a folder that is ours as long as we hold it; SIGKILL leaves it behind, so the next one looks for such."""
    sweep()
    path = tempfile.mkdtemp(prefix=PREFIX)
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the folder's age has to do
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


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
