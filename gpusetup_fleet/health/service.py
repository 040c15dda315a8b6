"""In service or out of it: a machine leaves after some bad verifications in a row, and returns after some good ones.

A single verification decides nothing. A machine that leaves repeatedly within a day needs twice as many good ones each
time. Its history keeps these events.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpusetup.model.verdict import Level
from gpusetup.report.history import opened

LEVELS = ("quick", "smoke", "full", "stress")
_DAY, _HOUR = 86400.0, 3600.0
_MOST = 64
"""The highest factor for the good verifications that a flapping machine needs."""
_KEPT = 300
"""Events of a kind."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How many verifications in a row it takes to leave and to return."""

    leave: int = 2
    back: int = 3


@dataclass(frozen=True, kw_only=True)
class Look:
    """One verification: its time, and what is bad; empty if all is well."""

    moment: float
    level: Level
    """The level of the verification; of a bad one, the level that a verification needs to see the failure."""
    bad: str = ""


@dataclass(frozen=True)
class Kept:
    """Where a machine's standing is kept: in its history, separately for each place."""

    path: Path
    place: str
    """`slurm`, `kubernetes`, or `commands` for `--on-bad` and `--on-good`."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """A change of a machine's service."""

    moment: float
    place: str
    event: str
    """`left`, `returned`, `by hand` (somebody returned or took it), `refused` (a job), `forgotten` (a kernel log)."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Whether a machine is in service, with the counters that decide about it."""

    out: bool = False
    """gpusetup took it out of service."""
    reason: str = ""
    since: float = 0.0
    """The time when it left or returned."""
    bad: int = 0
    good: int = 0
    """Bad or good verifications in a row."""
    level: Level = "quick"
    """The highest level of the bad verifications: a good one of a lower level does not refute them."""
    told: str = ""
    """The command that ran last, `on-bad` or `on-good`, with ` failed` if it failed."""
    departures: int = 0
    """How often it left within the last day, since somebody returned it by hand."""
    refused: str = ""
    """Why a prolog or an epilog refused a job within the last hour."""
    forgotten: float = 0.0
    """Errors in the kernel log up to this time no longer count."""


def wanted(standing: Standing, rule: Rule) -> int:
    """Return how many good verifications in a row a machine needs to return."""
    return rule.back * min(_MOST, 1 << max(0, standing.departures - 1))


def counted(standing: Standing, look: Look, rule: Rule) -> Standing:
    """Return the standing after one more verification."""
    if look.bad:
        level = max(standing.level if standing.bad or standing.out else "quick", look.level, key=LEVELS.index)
        seen = replace(standing, bad=min(standing.bad + 1, rule.leave), good=0, level=level)
        if standing.out or seen.bad < rule.leave:
            return seen
        departures = standing.departures + 1
        return replace(seen, out=True, reason=look.bad, since=look.moment, departures=departures)
    if (standing.out or standing.bad) and LEVELS.index(look.level) < LEVELS.index(standing.level):
        return standing
    seen = replace(standing, bad=0, good=standing.good + 1)
    if standing.out and seen.good >= wanted(standing, rule):
        return replace(seen, out=False, reason="", since=look.moment, level="quick")
    return seen if standing.out else replace(seen, level="quick")


def load(kept: Kept, now: float) -> Standing:
    """Read the standing from the host's history."""
    with closing(opened(kept.path)) as database:
        row = database.execute("SELECT bad, good, level, told FROM looks WHERE place = ?", (kept.place,)).fetchone()
    found = Standing() if row is None else Standing(bad=row[0], good=row[1], level=row[2], told=row[3])
    for one in events(kept.path):
        found = _after(found, one, now) if one.place == kept.place else found
    return found


def events(path: Path) -> tuple[Event, ...]:
    """Read the events of a host's service, oldest first."""
    with closing(opened(path)) as database:
        rows = database.execute("SELECT moment, place, event, reason FROM service ORDER BY rowid").fetchall()
    return tuple(Event(moment=moment, place=place, event=event, reason=reason) for moment, place, event, reason in rows)


def _after(found: Standing, one: Event, now: float) -> Standing:
    if one.event == "refused":
        return replace(found, refused=one.reason if now - one.moment < _HOUR else "")
    if one.event == "forgotten":
        return replace(found, forgotten=one.moment)
    out, fresh = one.event == "left", now - one.moment < _DAY
    departures = 0 if one.event == "by hand" else found.departures + (out and fresh)
    forgotten = one.moment if one.event == "by hand" else found.forgotten
    reason = one.reason if out else ""
    return replace(
        found, out=out, reason=reason, since=one.moment, departures=departures, forgotten=forgotten, refused=""
    )


def keep(kept: Kept, before: Standing, after: Standing, now: float, *, by_hand: bool = False) -> None:
    """Write the counters, and an event if the machine left or returned."""
    if before.out != after.out:
        note(kept, "left" if after.out else "by hand" if by_hand else "returned", after.reason or before.reason, now)
    with closing(opened(kept.path)) as database, database:
        row = (kept.place, after.bad, after.good, after.level, after.told)
        database.execute("INSERT OR REPLACE INTO looks (place, bad, good, level, told) VALUES (?, ?, ?, ?, ?)", row)


def note(kept: Kept, event: str, reason: str, now: float) -> None:
    """Write an event; of more than 300 of its kind the oldest are deleted."""
    kept.path.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    with closing(opened(kept.path)) as database, database:
        database.execute("INSERT INTO service VALUES (?, ?, ?, ?)", (now, kept.place, event, reason))
        database.execute(
            "DELETE FROM service WHERE rowid IN"
            " (SELECT rowid FROM service WHERE place = ? AND event = ? ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
            (kept.place, event, _KEPT),
        )


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Lock a host's standing; yield False if another verification holds the lock."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    handle = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
