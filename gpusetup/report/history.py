"""The history of a host: every verification, in one SQLite file per host.

Root's verifications of its own machine are kept on that machine, those of a fleet in the state folder of the user who
verifies it. So a controller need not write to the hosts, and a host that is gone keeps its history.

SQLite's transactions survive an interrupted write. The file stays bounded: the first runs stay, so that later ones can
be compared with them; of the others the oldest are deleted.
"""

import math
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, unquote

from gpusetup.drive.rundir import state_home
from gpusetup.errors import BadInputError
from gpusetup.model import stamp
from gpusetup.model.verdict import Curve, Curves
from gpusetup.report.model import HostReport, Report
from gpusetup.verify.baseline import LESS_IS_BETTER

MACHINE = Path("/var/lib/gpusetup")
KEPT, FIRST, LARGEST = 1000, 20, 32 << 20
"""The most runs of a level, how many of them are the first ones, and the most bytes of the file."""
_WAIT = 10.0


@dataclass(frozen=True)
class Run:
    """One verification of the past."""

    started: float
    level: str
    verdict: str
    seconds: float
    program: str
    driver: str
    findings: tuple[tuple[str, str, str], ...]
    """Check, verdict and text of each failure and warning."""

    @property
    def time(self) -> str:
        """The start, in UTC."""
        return stamp(self.started)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One figure of one part over time, oldest first."""

    check: str
    subject: str
    unit: str
    points: tuple[tuple[float, float], ...]
    """Seconds since 1970, and what was measured."""


def file_of(host: str, environment: Mapping[str, str], *, here: bool) -> Path:
    """Return the path of a host's history; `here`: this machine verifies itself."""
    if here and os.geteuid() == 0 and not environment.get("GPUSETUP_STATE"):
        return MACHINE / "verifications.sqlite3"
    return state_home(environment) / "verifications" / f"{quote(os.fsencode(host), safe='')}.sqlite3"


def known(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts whose histories are kept here."""
    folder = state_home(environment) / "verifications"
    return tuple(sorted(unquote(path.stem) for path in folder.glob("*.sqlite3")))


def append(path: Path, host: HostReport, report: Report, gpus: str) -> str:
    """Add a verification of the boards `gpus`; return a message if the file was damaged and set aside, else nothing."""
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
    """Yield the figures that were judged.

    Those beside a job say nothing about the machine, nor does a fail without a limit: it is no rate that could be.
    """
    for result in host.results:
        if not result.unit or result.level == "quick":
            continue
        for item in result.items:
            if not isinstance(item.measured, (int, float)) or not math.isfinite(item.measured):
                continue
            judged = item.verdict in ("pass", "warn") or (item.verdict == "fail" and item.limit is not None)
            if judged and item.blame != "job":
                yield result.id, item.subject, result.unit, float(item.measured)


def _bound(database: sqlite3.Connection, level: str) -> None:
    """Delete the oldest runs except the first ones, by number and by the size of the file."""
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
    """Open the file; create it if it is missing."""
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
            found.append(Run(*[*cells, tuple(told)]))
    return tuple(found)


def series(path: Path) -> tuple[Series, ...]:
    """Return every figure over time, from the runs on the same boards as the newest run with figures."""
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
    """Return a diagram for each check with at least three runs: figure over days, one line for each part."""
    found = []
    for check in dict.fromkeys(one.check for one in series):
        mine = [one for one in series if one.check == check and len(one.points) >= _FEWEST]
        if not mine:
            continue
        # Of many parts, such as every pair of GPUs, those that changed for the worst.
        mine.sort(key=lambda one: one.points[-1][1] / (one.points[0][1] or 1.0), reverse=mine[0].unit in LESS_IS_BETTER)
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
