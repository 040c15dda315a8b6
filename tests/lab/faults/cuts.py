"""Every point at which a command writes or runs something, tried: cut before and after it, a full disk, a read-only
file system, a command that fails. The host is in memory, so no root is needed; `tests/modules/cuts.py` has the points.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.faults.row import Row
from tests.modules.cuts import COMMANDS, Points

if TYPE_CHECKING:
    from collections.abc import Callable


def cut_at(command: str) -> str:
    """The name of a command's row."""
    return f"{command} cut or failing at every call"


def every_cut(report: Callable[[Row], None]) -> None:
    """Try all points of all commands and report one row for each command.

    It changes what the whole process does with files: nothing else may run beside it.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        points = Points(Path(folder), monkeypatch)
        for command in COMMANDS:
            began = time.monotonic()
            row = Row(cut_at(command))
            mine = [point for point in points.all if point.command == command]
            for point in mine:
                row.problems += [f"{point.way} {point.what}: {found}"[:300] for found in points.try_one(point)]
            row.saw = f"{len(mine)} points, {len(mine)} tried"
            row.after, row.again = "removal brings the host back", "the same command ends as if undisturbed"
            row.seconds = time.monotonic() - began
            report(row)
