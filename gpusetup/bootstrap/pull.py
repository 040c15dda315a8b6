"""Pull mode: exactly the lock whose digest was pinned, from a URL."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from gpusetup.bootstrap.record import write_whole
from gpusetup.bootstrap.trust import authorities
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
    import requests

    end, pause = time.monotonic() + config.fetch_deadline, 2.0
    while True:
        try:
            answer = requests.get(config.lock_url, timeout=60, stream=True, verify=authorities())
            answer.raise_for_status()
            raw = answer.raw.read(_LIMIT, decode_content=True)
            break
        except requests.RequestException as error:
            if time.monotonic() + pause > end:
                return Problem(
                    reference="GS-750", message=f"the lock cannot be fetched: {error}", exit=6,
                    hint="serve it, or let the machine reach the server",
                )  # fmt: skip
        time.sleep(pause)
        pause = min(pause * 2, 60.0)
    if (found := _digest(raw)) != config.lock_sha256:
        return Problem(
            reference="GS-751", message=f"{config.lock_url} has the digest {found}, not {config.lock_sha256}",
            hint="pin the new digest in the user-data of new machines, or serve the old lock", exit=3,
        )  # fmt: skip
    write_whole(target, raw)
    return None


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
