"""Pass passwords to Ansible through named pipes: never as arguments, environment variables or file contents.

gpusetup keeps a password as long as it may start another Ansible process, since each one reads it again. Python cannot
wipe strings from memory, so other processes must not be able to read this memory.
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PR_SET_DUMPABLE = 4


def keep_to_myself() -> None:
    """Prevent other processes of this user from reading this process's memory, and disable core files.

    Call it before asking for a password. It lasts until the process ends and does not apply to its children.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def password_pipe(folder: Path, name: str, password: str | None) -> Iterator[Path | None]:
    """Write a password to every reader of a named pipe while the block runs."""
    if password is None:
        yield None
        return
    path = folder / f".{name}.pipe"
    os.mkfifo(path, 0o600)
    over = threading.Event()
    feeder = threading.Thread(target=_feed, args=(path, password.encode() + b"\n", over), daemon=True)
    feeder.start()
    try:
        yield path
    finally:
        over.set()
        with suppress(OSError):
            # Wakes the feeder if nobody opened the pipe.
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        path.unlink(missing_ok=True)
        feeder.join(timeout=5)


def _feed(path: Path, secret: bytes, over: threading.Event) -> None:
    while not over.is_set():
        try:
            descriptor = os.open(path, os.O_WRONLY)
        except OSError:
            return
        if not over.is_set():
            with suppress(OSError):
                os.write(descriptor, secret)
        os.close(descriptor)
        # A reader sees the end only once every writer has closed: give it time to.
        over.wait(0.2)
