"""Passwords reach Ansible through named pipes: never an argument, an environment variable or a file with content.

The front-end holds a password for as long as it may have to start another Ansible process: a run has several, and each
asks anew. Python cannot wipe a text that it has handed about; what can be done is that nobody else reads this memory.
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
    """Let no other process of this user read this one's memory, and no core file be written of it.

    It is called before a password is asked for, and lasts as long as the process. What it starts is not bound by it.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def password_pipe(folder: Path, name: str, password: str | None) -> Iterator[Path | None]:
    """Offer a password to whoever opens the pipe, for as long as the block runs."""
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
            # Wakes the feeder when nobody ever opened the pipe.
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
        # A reader sees the end only when every writer has closed: leave it the time to.
        over.wait(0.2)
