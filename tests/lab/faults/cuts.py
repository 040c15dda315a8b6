"""Every point at which a command writes or runs something, tried: cut before and after it, a full disk, a read-only
file system, a command that fails. The host is in memory, so no root is needed; `tests/modules/cuts.py` has the points.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.faults.row import Row
from tests.modules.cuts import COMMANDS, Host, Points
from tests.modules.cuts_beside import WORLDS


def cut_at(command: str, world: type[Host]) -> str:
    return " ".join(filter(None, [command, world.what, "at every call"]))


_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A point writes some hundred files: on a disk that others use it takes ten times as long."""
NAMES = tuple(cut_at(command, world) for world in WORLDS for command in COMMANDS)


def every_cut(report: Callable[[Row], None]) -> None:
    """Try all points of all commands and report one row for each command.

    It changes what the whole process does with files: nothing else may run beside it.
    """
    for world in WORLDS:
        _every_cut_of(world, report)


def _every_cut_of(world: type[Host], report: Callable[[Row], None]) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder, pytest.MonkeyPatch.context() as monkeypatch:
        points = Points(Path(folder), monkeypatch, world)
        for command in COMMANDS:
            began = time.monotonic()
            row = Row(cut_at(command, world))
            mine = [point for point in points.all if point.command == command]
            for point in mine:
                row.problems += [f"{point.way} {point.what}: {found}"[:300] for found in points.try_one(point)]
            row.saw = f"{len(mine)} points"
            row.seconds = time.monotonic() - began
            report(row)
