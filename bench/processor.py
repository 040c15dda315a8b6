"""Processor seconds of a command and of the lab hosts that it works on: on a shared machine they say more than a clock.

Two control groups of the kernel count them: whatever this process starts before a command (lab hosts) stays in one, and
what it starts during the command (ssh, Ansible, processes that outlive it) in the other.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Meter", "Used"]

_EVERY = 0.05
_TOPS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup"))


class Used(NamedTuple):
    """Processor seconds."""

    controller: float = 0.0
    hosts: float = 0.0

    def __sub__(self, other: Used) -> Used:
        return Used(self.controller - other.controller, self.hosts - other.hosts)


class Meter:
    """Counts once it has begun; where the kernel has no such groups, everything stays at zero."""

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
        """Leave the groups, and no trace of them once what they counted has ended."""
        for group in self._groups:
            _enter(group.parent)
            with suppress(OSError):
                group.rmdir()
        self._groups = ()

    @contextmanager
    def command(self) -> Iterator[None]:
        """Count what is started meanwhile as the command's, and look often enough to tell its steps apart."""
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
        """Return what had been used at a moment of the last command."""
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
