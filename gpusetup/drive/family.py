"""A process and all that it started, found by the parents that /proc names, and ended together."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_GONE_WITHIN = 2.0
"""A killed process goes when the kernel gets round to it; one that waits for a dead disk may never."""


def descendants(roots: Iterable[int]) -> set[int]:
    """Every process below these."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting.extend(new)
    return found


def end_all(roots: Iterable[int]) -> None:
    """Kill these and all below them, and see them gone. What is stopped first can start nothing behind our back."""
    family: set[int] = set()
    new = set(roots)
    while new:
        _signal(new, signal.SIGSTOP)
        family |= new
        new = descendants(family) - family
    _signal(family, signal.SIGKILL)
    until = time.monotonic() + _GONE_WITHIN
    while any(map(_lives, family)) and time.monotonic() < until:
        time.sleep(0.005)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _lives(pid: int) -> bool:
    stat = _stat(pid)
    return bool(stat) and stat[0] not in "ZX"


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name, state and parent first; empty where it is gone."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []
