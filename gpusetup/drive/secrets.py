"""What Ansible knows to be secret reaches us through a named pipe, so that the log can be written without it."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gpusetup.components.parsing import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

ENVIRONMENT = "GPUSETUP_SECRETS"
"""Names the pipe to the callback inside Ansible."""


class Secrets:
    """The secrets of one playbook as far as they are known, and texts without them."""

    def __init__(self, descriptor: int, known: Iterable[str | None]) -> None:
        self._descriptor = descriptor
        self._known: set[str] = set()
        self._rest = b""
        self._learn(secret for secret in known if secret)

    def without(self, text: str) -> str:
        """Return a line of Ansible's without secrets: it tells a secret before it tells anything about its host."""
        self.listen()
        return without_secrets(text, self._known)

    def listen(self) -> list[str]:
        """Take what was told since the last time, and return it."""
        told: list[str] = []
        with suppress(BlockingIOError):
            while data := os.read(self._descriptor, 65536):
                *lines, self._rest = (self._rest + data).split(b"\n")
                told += [json.loads(line) for line in lines]
        self._learn(told)
        return told

    def _learn(self, secrets: Iterable[str]) -> None:
        for secret in secrets:
            self._known |= {secret, json.dumps(secret)[1:-1]}  # a module's arguments are printed as JSON


@contextmanager
def secrets_pipe(folder: Path, known: Iterable[str | None], suffix: str = "") -> Iterator[tuple[Path, Secrets]]:
    """Make the pipe for as long as the block runs; `known` are secrets that need not be told."""
    path = folder / f".secrets{suffix}.pipe"
    os.mkfifo(path, 0o600)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield path, Secrets(descriptor, known)
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)


def tell_secrets(path: str | None, secrets: Iterable[str]) -> None:
    """Tell secrets to whoever writes the log; nobody listens where Ansible was not started by gpusetup."""
    if path:
        with suppress(OSError):
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(descriptor, True)
            try:
                os.write(descriptor, b"".join(json.dumps(secret).encode() + b"\n" for secret in secrets))
            finally:
                os.close(descriptor)
