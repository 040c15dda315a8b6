"""A large fleet has several Ansible processes: in one, each task costs every host time that grows with all of them.

The first process reads the inventory, keeps as many hosts as a shard has and names the others, which the next processes
work on. A process in which nobody has spoken for a while waits for a host that hangs: it holds nobody else up.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpusetup.drive.events import Event, Track
    from gpusetup.drive.runner import Process

SIZE = "GPUSETUP_SHARD_SIZE"
"""So many hosts at most are one shard."""
WHICH = "GPUSETUP_SHARD_HOSTS"
"""Names the file with the names of a shard's hosts."""
NUMBER = "GPUSETUP_SHARD"

_HOSTS = 250
_BESIDE = 4
"""So many processes work at once at most, on a machine that has the processors for them."""
_WAITING = 4
"""So many may wait for hosts that hang, beside those that work."""
_SILENT_SECONDS = 20.0


def own_hosts(hosts: Sequence[Any], environment: Mapping[str, str]) -> list[Any]:
    """Inside Ansible: return those of a play's hosts that this process works on."""
    if WHICH in environment:
        names = set(json.loads(Path(environment[WHICH]).read_text(encoding="utf-8")))
        return [host for host in hosts if host.name in names]
    size = int(environment.get(SIZE) or 0) or len(hosts)
    return list(hosts[: _even(len(hosts), size)])


class Shards:
    """Which process works on which hosts, and when the next one may begin."""

    def __init__(
        self,
        folder: Path,
        track: Track,
        begin: Callable[[int, Mapping[str, str]], Process],
        *,
        forks: int | None,
        together: bool,
    ) -> None:
        self.folder, self.track, self.begin = folder, track, begin
        # Who says how many hosts are worked on at once means all of them.
        self.beside = 1 if forks else min(_BESIDE, os.cpu_count() or 1)
        self.size = 0 if together else int(os.environ.get(SIZE) or _HOSTS)
        self.hosts: dict[int, tuple[str, ...]] = {0: ()}
        self.of: dict[Process, int] = {}
        self.spoke: dict[int, float] = {}

    def heard(self, event: Event) -> None:
        """Remember that somebody of a shard spoke."""
        self.spoke[int(event.get("shard", 0))] = time.monotonic()

    def next(self, running: list[Process]) -> Process | None:
        """Begin the next process if it is time for it."""
        number = len(self.of)
        if number:
            self._divide()
            if number not in self.hosts or not self._may_start(running):
                return None
            path = self.folder / f"shard-{number}.json"
            path.write_text(json.dumps(self.hosts[number]), encoding="utf-8")
            own = {WHICH: str(path), NUMBER: str(number)}
        else:
            own = {SIZE: str(self.size)}
        process = self.begin(number, own)
        self.of[process] = number
        self.spoke[number] = time.monotonic()
        return process

    def _divide(self) -> None:
        """Share out what the first process left, once it has told."""
        rest = self.track.rest
        if len(self.hosts) > 1 or not rest:
            return
        size = _even(len(rest), self.size)
        for start in range(0, len(rest), size):
            self.hosts[len(self.hosts)] = rest[start : start + size]

    def _may_start(self, running: list[Process]) -> bool:
        now = time.monotonic()
        working = sum(now - self.spoke[self.of[process]] < _SILENT_SECONDS for process in running)
        return working < self.beside and len(running) < self.beside + _WAITING


def _even(hosts: int, size: int) -> int:
    """Return the size of shards that are alike, of at most so many hosts."""
    return -(-hosts // -(-hosts // size)) if hosts else 1
