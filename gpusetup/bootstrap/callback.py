"""Tell a URL how it goes: the status document by POST, retried, and never in the way of the work."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpusetup.bootstrap.web import Unfetched, passes, session

if TYPE_CHECKING:
    from gpusetup.model.status import Status

__all__ = ["TOKEN_FILE", "Callback"]

TOKEN_FILE = Path("/etc/gpusetup/callback.token")
_TRIES = 6
_PAUSE = 2.0


class Callback:
    """One thread that posts the newest status; older ones that could not be posted are dropped."""

    def __init__(self, url: str, token_file: Path = TOKEN_FILE, pause: float = _PAUSE) -> None:
        self.url, self.token_file, self.pause = url, token_file, pause
        self.newest: Status | None = None
        self.changed = threading.Event()
        self.idle = threading.Event()
        self.idle.set()
        if url:
            threading.Thread(target=self._work, daemon=True).start()

    def tell(self, status: Status) -> None:
        """Hand a status over; returns at once."""
        if self.url:
            self.idle.clear()
            self.newest = status
            self.changed.set()

    def settle(self, seconds: float) -> bool:
        """Give the newest status some time to arrive."""
        return self.idle.wait(seconds)

    def _work(self) -> None:
        while True:
            self.changed.wait()
            self.changed.clear()
            status = self.newest
            if status is not None:
                self._deliver(status)
            if not self.changed.is_set():
                self.idle.set()

    def _deliver(self, status: Status) -> None:
        headers = {"Content-Type": "application/json"}
        with suppress(OSError, UnicodeDecodeError):
            headers["Authorization"] = f"Bearer {self.token_file.read_text(encoding='ascii').strip()}"
        body = msgspec.json.encode(status)
        for attempt in range(_TRIES):
            try:
                with session() as opened:
                    answer = opened.post(self.url, data=body, headers=headers, timeout=15, allow_redirects=False)
                if not passes(answer.status_code):
                    return
            except Unfetched:
                pass
            if self.changed.wait(self.pause * 2**attempt):
                return
