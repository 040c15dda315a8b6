"""CPU seconds of a command and of its lab hosts: on a shared machine they are more reliable than wall time.

Two control groups count them: processes that were started before the command (lab hosts) are in one, those started
during the command (ssh, Ansible, processes that outlive it) in the other.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["Meter", "Used"]

_EVERY = 0.05
_TOPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))


class Used(NamedTuple):
    """CPU seconds."""

    controller: float = 0.0
    hosts: float = 0.0

    def __sub__(self, other: Used) -> Used:
        return Used(self.controller - other.controller, self.hosts - other.hosts)


class Meter:
    """Counts CPU seconds between `begin` and `end`; always zero without control groups."""

    def __init__(self) -> None:
        self._groups: tuple[Path, ...] = ()
        self._moments: list[float] = []
        self._used: list[Used] = []

    def begin(self) -> None:
        """Count what this process starts from now on."""
        for top in _TOPS:
            groups = tuple(top / f"gpusetup-bench-{os.getpid()}-{part}" for part in ("controller", "hosts"))
            with suppress(OSError, StopIteration):
                for group in groups:
                    group.mkdir(exist_ok=True)
                    _read(group)
                _enter(groups[1])
                self._groups = groups
                return

    def end(self) -> None:
        """Leave the groups and remove them, if their processes have ended."""
        for group in self._groups:
            _enter(group.parent)
            with suppress(OSError):
                group.rmdir()
        self._groups = ()

    @contextmanager
    def command(self) -> Iterator[None]:
        """Count processes started during the block as the command's; sample often enough to separate its steps."""
        if not self._groups:
            yield
            return
        controller, hosts = self._groups
        over = threading.Event()

        def look() -> None:
            while not over.wait(_EVERY):
                self._look()

        watcher = threading.Thread(target=look, daemon=True)
        self._moments, self._used = [], []
        self._look()
        _enter(controller)
        watcher.start()
        try:
            yield
        finally:
            _enter(hosts)
            over.set()
            watcher.join()
            self._look()

    def at(self, moment: float) -> Used:
        """Return the CPU seconds used up to a moment of the last command."""
        place = bisect_right(self._moments, moment)
        return self._used[max(0, place - 1)] if self._used else Used()

    def _look(self) -> None:
        self._moments.append(time.time())
        self._used.append(Used(*map(_read, self._groups)))


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _read(group: Path) -> float:
    usage = group / "cpuacct.usage"
    if usage.exists():
        return int(usage.read_text()) / 1e9
    lines = (group / "cpu.stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec ")) / 1e6
