"""The agent on a watched host: writes a line of JSON per reading to standard output, until standard input ends.

A driver that does not answer delays the reading, but not the lines: they then say for how long it has not answered,
and which call is pending.
"""

import json
import os
import select
import sys
import threading
import time
from typing import Any, Dict, Optional

from .reader import Reader

__all__ = ["Agent", "main"]

PATIENCE = 5.0
"""Seconds after which a pending reading is reported."""


class Agent:
    """Reads in a thread, writes in the main thread."""

    def __init__(self, reader: Any, every: float, source: int = 0, target: int = 1) -> None:
        self.reader, self.every = reader, every
        self.source, self.target = source, target
        self.begun = time.monotonic()
        self.found: Optional[Dict[str, Any]] = None
        self._go = threading.Semaphore(0)
        self._ready, self._done = os.pipe()

    def run(self) -> None:
        """Write readings until standard input ends or standard output is closed."""
        looking = threading.Thread(target=self._look, name="look")
        looking.daemon = True
        looking.start()
        due = time.monotonic()
        while True:
            self.begun = time.monotonic()
            self._go.release()
            if not self._wait_for_answer():
                return
            document, self.found = self.found, None
            if not self._tell(dict(document or {}, watch=1)):
                return
            due = max(due + self.every, time.monotonic() + 0.05)  # missed readings are skipped
            if not self._wait(due, answered=False):
                return

    def _wait_for_answer(self) -> bool:
        """Wait for the reading and report what delays it; return False when the reader is gone."""
        while self.found is None:
            if not self._wait(time.monotonic() + max(self.every, PATIENCE), answered=True):
                return False
            silent = time.monotonic() - self.begun
            if self.found is None and silent >= PATIENCE:
                stuck = {"watch": 1, "time": round(time.time(), 3), "stuck": round(silent, 1), "in": self.reader.doing}
                if not self._tell(stuck):
                    return False
        return True

    def _wait(self, until: float, answered: bool) -> bool:
        """Wait until the time, or (`answered`) for the reading; return False when standard input has ended."""
        while True:
            left = until - time.monotonic()
            ready = select.select([self.source, self._ready], [], [], max(0.0, left))[0]
            if self.source in ready and not os.read(self.source, 4096):
                return False
            if self._ready in ready:
                os.read(self._ready, 1)
                if answered:
                    return True
            if left <= 0:
                return True

    def _look(self) -> None:
        while True:
            self._go.acquire()
            try:
                found = self.reader.read()
            except Exception as error:  # noqa: BLE001 - reported in the line, and tried again
                found = {"time": round(time.time(), 3), "gpus": [], "error": f"{type(error).__name__}: {error}"}
            self.found = found
            os.write(self._done, b".")

    def _tell(self, document: Dict[str, Any]) -> bool:
        line = json.dumps(document, separators=(",", ":")).encode("utf-8") + b"\n"
        try:
            while line:
                line = line[os.write(self.target, line) :]
        except OSError:
            return False
        return True


def main(options: Dict[str, Any]) -> None:
    """Run the agent until standard input ends, then exit at once, even if a reading hangs in the driver."""
    os.nice(5)
    Agent(Reader(), float(options.get("every", 2.0))).run()
    sys.stderr.flush()
    os._exit(0)
