"""Split a large fleet among several Ansible processes: in one process, each task gets slower with the number of hosts.

The first process reads the inventory, keeps one shard of hosts and reports the others for the next processes. A process
without events for a while waits for a host that hangs; it then no longer counts as working, and another one can start.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusetup.drive.events import Event, Track
from gpusetup.drive.runner import Process

SIZE = "GPUSETUP_SHARD_SIZE"
"""Holds the largest number of hosts of a shard."""
WHICH = "GPUSETUP_SHARD_HOSTS"
"""Holds the path of the file with a shard's host names."""
NUMBER = "GPUSETUP_SHARD"

_HOSTS = 250
_BESIDE = 4
"""Most processes that work at once; fewer on a machine with fewer CPUs."""
_WAITING = 4
"""Further processes that may wait for hanging hosts."""
_SILENT_SECONDS = 20.0


def own_hosts(hosts: Sequence[Any], environment: Mapping[str, str]) -> list[Any]:
    """Return the hosts of a play that this Ansible process works on."""
    if WHICH in environment:
        names = set(json.loads(Path(environment[WHICH]).read_text(encoding="utf-8")))
        return [host for host in hosts if host.name in names]
    size = int(environment.get(SIZE) or 0) or len(hosts)
    return list(hosts[: _even(len(hosts), size)])


class Shards:
    """Assigns hosts to processes, and decides when the next process may start."""

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
        # --forks limits the hosts worked on at once in all, so there is one process at a time.
        self.beside = 1 if forks else min(_BESIDE, os.cpu_count() or 1)
        self.size = 0 if together else int(os.environ.get(SIZE) or _HOSTS)
        self.hosts: dict[int, tuple[str, ...]] = {0: ()}
        self.of: dict[Process, int] = {}
        self.spoke: dict[int, float] = {}

    def heard(self, event: Event) -> None:
        """Record the time of an event of a shard."""
        self.spoke[int(event.get("shard", 0))] = time.monotonic()

    def next(self, running: list[Process]) -> Process | None:
        """Start and return the next process, or return None if it is not its time."""
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
        """Divide the hosts that the first process left, once it has reported them."""
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
    return -(-hosts // -(-hosts // size)) if hosts else 1
