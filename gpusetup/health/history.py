"""Every verification of a host, in one SQLite file per host.

The file belongs to whoever judged: root's own verifications of a machine are kept on that machine, those of a fleet
beside the other state of the person who verifies it. So each file has one writer's view, nobody needs a second way into
a host to write what the controller concluded, and a host that is gone keeps its history.

SQLite's transactions make a cut while writing harmless; the file stays bounded: the first runs stay, for they are what
later ones are compared with, the oldest of the others go.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from gpusetup.drive.rundir import state_home
from gpusetup.errors import BadInputError
from gpusetup.model.verdict import Curve, Curves
from gpusetup.verify.decay import Series

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpusetup.report.model import HostReport, Report

MACHINE = Path("/var/lib/gpusetup")
KEPT, FIRST, LARGEST = 1000, 20, 32 << 20
"""Runs of a level that are kept, how many of them are the first ones, and bytes of the whole file."""
_WAIT = 10.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """One verification of the past."""

    started: float
    level: str
    verdict: str
    seconds: float
    program: str
    driver: str
    findings: tuple[tuple[str, str, str], ...]
    """Check, verdict and text of what failed or warned."""

    @property
    def time(self) -> str:
        """When it began, in UTC."""
        return iso(self.started)


def iso(seconds: float) -> str:
    """Return a moment, in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def file_of(host: str, environment: Mapping[str, str], *, here: bool) -> Path:
    """Return where the history of a host is; `here`: this machine verified itself."""
    if here and os.geteuid() == 0 and not environment.get("GPUSETUP_STATE"):
        return MACHINE / "verifications.sqlite3"
    return state_home(environment) / "verifications" / f"{quote(host, safe='')}.sqlite3"


def known(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts whose histories are kept here."""
    folder = state_home(environment) / "verifications"
    return tuple(sorted(unquote(path.stem) for path in folder.glob("*.sqlite3")))


def append(path: Path, host: HostReport, report: Report, gpus: str) -> str:
    """Keep a verification; return what is to be said: a damaged file was set aside. `gpus` names the boards."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    try:
        _append(path, host, report, gpus)
    except (sqlite3.OperationalError, sqlite3.IntegrityError):
        raise
    except sqlite3.DatabaseError:
        aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        path.replace(aside)
        for left in ("-journal", "-wal", "-shm"):
            path.with_name(path.name + left).unlink(missing_ok=True)
        _append(path, host, report, gpus)
        return f"the history was damaged; it is kept as {aside}, and another is started"
    return ""


def _append(path: Path, host: HostReport, report: Report, gpus: str) -> None:
    driver = next((row.text for row in host.rows if row.label == "driver"), "")
    started = datetime.fromisoformat(report.started.replace("Z", "+00:00")).timestamp()
    level = host.level or report.level
    with closing(opened(path)) as database, database:
        row = (started, level, host.verdict, host.seconds, report.program, driver, gpus)
        run = database.execute(
            "INSERT INTO run (started, level, verdict, seconds, program, driver, gpus) VALUES (?, ?, ?, ?, ?, ?, ?)",
            row,
        ).lastrowid
        database.executemany(
            "INSERT INTO finding VALUES (?, ?, ?, ?)",
            [(run, one.id, one.verdict, one.text) for one in host.results if one.verdict in ("fail", "warn")],
        )
        database.executemany("INSERT INTO figure VALUES (?, ?, ?, ?, ?)", [(run, *cells) for cells in _figures(host)])
        _bound(database, level)


def _figures(host: HostReport) -> Iterator[tuple[str, str, str, float]]:
    """Yield the figures that were judged: what was measured beside somebody's work says nothing about the machine."""
    for result in host.results:
        if not result.unit or result.level == "quick":
            continue
        for item in result.items:
            if not isinstance(item.measured, (int, float)) or not math.isfinite(item.measured):
                continue
            if item.verdict in ("pass", "warn", "fail") and item.blame != "job":
                yield result.id, item.subject, result.unit, float(item.measured)


def _bound(database: sqlite3.Connection, level: str) -> None:
    """Let the oldest go, but for the first: by number, and by the size of the file."""
    surplus = (
        "DELETE FROM run WHERE id IN (SELECT id FROM run WHERE level = ? AND id NOT IN"
        " (SELECT id FROM run WHERE level = ? ORDER BY id LIMIT ?) ORDER BY id DESC LIMIT -1 OFFSET ?)"
    )
    database.execute(surplus, (level, level, FIRST, KEPT - FIRST))
    (pages,), (size,), (free,) = (
        database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size", "freelist_count")
    )
    if (pages - free) * size > LARGEST:
        for (one,) in database.execute("SELECT DISTINCT level FROM run").fetchall():
            (number,) = database.execute("SELECT count(*) FROM run WHERE level = ?", (one,)).fetchone()
            database.execute(surplus, (one, one, FIRST, max(0, (number - FIRST) * 3 // 4)))


def opened(path: Path) -> sqlite3.Connection:
    """Open the file; one that is not there is made."""
    fresh = not path.exists()
    database = sqlite3.connect(path, timeout=_WAIT)
    try:
        if fresh:
            path.chmod(0o600)
            database.execute("PRAGMA auto_vacuum = FULL")
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("PRAGMA synchronous = FULL")
        database.executescript(Path(__file__).with_name("history.sql").read_text(encoding="utf-8"))
    except sqlite3.Error:
        database.close()
        raise
    return database


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(opened(path)) as database:
            yield database
    except sqlite3.DatabaseError as error:
        raise BadInputError("GS-514", f"cannot read the history {path}: {error}", path=str(path)) from error


def runs(path: Path, level: str = "", limit: int = 0) -> tuple[Run, ...]:
    """Return the newest runs, oldest first."""
    found = []
    with _reading(path) as database:
        where, values = ("WHERE level = ?", (level,)) if level else ("", ())
        rows = database.execute(
            f"SELECT id, started, level, verdict, seconds, program, driver FROM run {where} ORDER BY id DESC LIMIT ?",  # noqa: S608 - two texts of our own
            (*values, limit or -1),
        ).fetchall()
        for identity, *cells in reversed(rows):
            told = database.execute("SELECT name, verdict, text FROM finding WHERE run = ?", (identity,)).fetchall()
            found.append(_run(cells, tuple((name, verdict, text) for name, verdict, text in told)))
    return tuple(found)


def _run(cells: list[object], findings: tuple[tuple[str, str, str], ...]) -> Run:
    started, level, verdict, seconds, program, driver = cells
    return Run(
        started=float(str(started)), level=str(level), verdict=str(verdict), seconds=float(str(seconds)),
        program=str(program), driver=str(driver), findings=findings,
    )  # fmt: skip


def series(path: Path) -> tuple[Series, ...]:
    """Return every figure over time, of the boards that the newest run with figures saw."""
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with _reading(path) as database:
        rows = database.execute(
            "SELECT figure.name, figure.subject, figure.unit, run.started, figure.value FROM figure"
            " JOIN run ON run.id = figure.run WHERE run.gpus = (SELECT gpus FROM run JOIN figure ON figure.run = run.id"
            " ORDER BY run.id DESC LIMIT 1) ORDER BY run.id"
        )
        for name, subject, unit, started, value in rows:
            points.setdefault((name, subject, unit), []).append((started, value))
    return tuple(
        Series(check=name, subject=subject, unit=unit, points=tuple(found))
        for (name, subject, unit), found in points.items()
    )


_FEWEST = 3
_LINES = 8
_DAY = 86400.0


def pictures(series: Sequence[Series]) -> tuple[Curves, ...]:
    """Return a diagram for each check with at least three runs: days against the figure, a line for each part."""
    found = []
    for check in dict.fromkeys(one.check for one in series):
        mine = [one for one in series if one.check == check and len(one.points) >= _FEWEST]
        if not mine:
            continue
        # Of many parts, such as every pair of GPUs, those that changed for the worst.
        mine.sort(key=lambda one: one.points[-1][1] / (one.points[0][1] or 1.0))
        begin = min(one.points[0][0] for one in mine)
        lines = tuple(
            Curve(
                name=one.subject or check,
                points=tuple((round((when - begin) / _DAY, 4), value) for when, value in one.points),
            )
            for one in sorted(mine[:_LINES], key=lambda one: one.subject)
        )
        found.append(Curves(title=f"{check} over time", x_label="days", y_label=mine[0].unit, lines=lines))
    return tuple(found)
