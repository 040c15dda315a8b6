"""Secrets go to Ansible, and come from it, through named pipes: never as arguments, environment or file contents.

gpusetup keeps a password as long as it may start another Ansible process, since each one reads it again. Python cannot
wipe strings from memory, so other processes must not be able to read this memory. What Ansible's own inventory holds
comes back to be removed from the log.
"""

import ctypes
import json
import os
import resource
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpusetup.components.parsing import without_secrets

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
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # wakes the feeder if nobody opened the pipe
            feeder.join()
            os.close(reader)
        path.unlink(missing_ok=True)


def _feed(path: Path, secret: bytes, over: threading.Event) -> None:
    fresh = path.with_suffix(".next")
    with suppress(OSError):
        while not over.is_set():
            with suppress(BrokenPipeError), os.fdopen(os.open(path, os.O_WRONLY), "wb", 0) as pipe:
                if not over.is_set():
                    os.mkfifo(fresh, 0o600)
                    fresh.rename(path)  # a reader that sees its end late must not read the password twice
                    pipe.write(secret)


ENVIRONMENT = "GPUSETUP_SECRETS"
"""Names the pipe to the callback inside Ansible."""


class Secrets:
    """The known secrets of one playbook."""

    def __init__(self, descriptor: int, known: Iterable[str | None]) -> None:
        self._descriptor = descriptor
        self._known: set[str] = set()
        self._rest = b""
        self._learn(secret for secret in known if secret)

    def without(self, text: str) -> str:
        """Return a line of Ansible's output without secrets; they arrive before any output about their host."""
        self.listen()
        return without_secrets(text, self._known)

    def listen(self) -> list[str]:
        """Read the secrets that came since the last call, and return them."""
        told: list[str] = []
        with suppress(BlockingIOError):
            while data := os.read(self._descriptor, 65536):
                *lines, self._rest = (self._rest + data).split(b"\n")
                told += [json.loads(line) for line in lines]
        self._learn(told)
        return told

    def _learn(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            self._known |= {secret, json.dumps(secret)[1:-1]}  # Ansible prints a module's arguments as JSON


@contextmanager
def secrets_pipe(folder: Path, known: Iterable[str | None], suffix: str = "") -> Iterator[tuple[Path, Secrets]]:
    """Make the pipe for the time of the block; `known`: secrets to remove from the start."""
    path = folder / f".secrets{suffix}.pipe"
    os.mkfifo(path, 0o600)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield path, Secrets(descriptor, known)
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)


def tell_secrets(path: str | None, secrets: Iterable[str]) -> None:
    """Send secrets to the writer of the log; there is none if gpusetup did not start Ansible."""
    if path:
        with suppress(OSError):
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(descriptor, True)
            try:
                os.write(descriptor, b"".join(json.dumps(secret).encode() + b"\n" for secret in secrets))
            finally:
                os.close(descriptor)
