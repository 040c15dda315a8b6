"""Pull mode: exactly the lock whose digest was pinned, from a URL."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from gpusetup.bootstrap.record import write_whole
from gpusetup.bootstrap.web import Unfetched, fetch
from gpusetup.model.status import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from gpusetup.bootstrap.config import Config

__all__ = ["fetch_lock"]

_LIMIT = 4 * 1024 * 1024


def fetch_lock(config: Config, target: Path) -> Problem | None:
    """Fetch, compare, keep; a lock that is there already with that digest is not fetched again."""
    if target.exists() and _digest(target.read_bytes()) == config.lock_sha256:
        return None
    try:
        raw = fetch(config.lock_url, limit=_LIMIT, patience=config.fetch_deadline)
    except Unfetched as error:
        return Problem(
            reference="GS-750", message=f"the lock cannot be fetched: {error}", exit=6,
            hint="check the server, and that the machine can reach it",
        )  # fmt: skip
    if (found := _digest(raw)) != config.lock_sha256:
        return Problem(
            reference="GS-751", message=f"{config.lock_url} has the digest {found}, not {config.lock_sha256}",
            hint="pin the new digest in the user-data of new machines, or serve the old lock", exit=3,
        )  # fmt: skip
    write_whole(target, raw)
    return None


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
