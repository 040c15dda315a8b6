"""Receive secrets from Ansible through a named pipe, so that they can be removed from the log."""

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
