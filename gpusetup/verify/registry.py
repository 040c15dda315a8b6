"""The registry of checks: small files below `checks/<level>/`, found by being there.

A file holds one check, or a table of checks that differ in the part of one measurement that they judge.

A check judges observations and never runs anything. What it needs is named; when that is missing the check says so
and is skipped: a check that did not run is never a pass.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from gpusetup.model.verdict import Finding, Item, Level, Result, worst
from gpusetup.verify.blame import blamed
from gpusetup.verify.needs import missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.verify.machine import Machine

__all__ = ["Check", "Row", "check", "checks", "find", "from_items", "in_packages", "in_stack", "table"]

LEVELS: tuple[Level, ...] = ("quick", "smoke", "full", "stress")


@dataclass(frozen=True)
class Check:
    """A registered check."""

    id: str
    level: Level
    title: str
    needs: tuple[str, ...]
    seconds: Callable[[Machine], float]
    judge: Callable[[Machine], Finding]
    page: str
    """The module's docstring: what is looked at, how it is judged, what to do."""
    applies: Callable[[Machine], bool] = lambda _machine: True
    """Whether a report on this machine lists the check at all."""
    asked: Callable[[Machine], bool] | None = None
    """Whether somebody asked for what it looks at; a failure of what merely lies there is a warning."""

    def run(self, machine: Machine) -> Result:
        """Judge, unless something that is needed is missing."""
        lacking = missing(self.needs, machine)
        finding = lacking if lacking is not None else self.judge(machine)
        finding = blamed(self.id, finding, asked=self.asked(machine) if self.asked is not None else None)
        return Result(
            id=self.id,
            level=self.level,
            verdict=finding.verdict,
            text=finding.text,
            measured=finding.measured,
            expected=finding.expected,
            limit=finding.limit,
            unit=finding.unit,
            seconds=round(self.seconds(machine), 3) if lacking is None else 0.0,
            items=finding.items,
            figures=finding.figures,
            blame=finding.blame,
        )


_FOUND: dict[str, Check] = {}


def check(
    identity: str,
    title: str,
    *,
    needs: tuple[str, ...] = (),
    seconds: Callable[[Machine], float] = lambda _: 0.0,
    applies: Callable[[Machine], bool] = lambda _machine: True,
    asked: Callable[[Machine], bool] | None = None,
) -> Callable[[Callable[[Machine], Finding]], Callable[[Machine], Finding]]:
    """Register the decorated function; its level is the folder of its file, its page the file's docstring."""

    def register(judge: Callable[[Machine], Finding]) -> Callable[[Machine], Finding]:
        level, page = _place(judge.__module__)
        _FOUND[identity] = Check(identity, level, title, needs, seconds, judge, page, applies, asked)
        return judge

    return register


def in_stack(name: str) -> Callable[[Machine], bool]:
    """Return the question whether somebody asked for a component of the stack."""
    return lambda machine: machine.wanted.asks_for(name)


def in_packages(group: str) -> Callable[[Machine], bool]:
    """Return the question whether the host's record has system packages of a group."""
    return lambda machine: machine.wanted.packages(group)


class Row(NamedTuple):
    """One check of a table: what its page begins with, and the part of the measurement that it judges."""

    id: str
    title: str
    says: str
    part: str


def table(
    judge: Callable[[Machine, str], Finding],
    rows: tuple[Row, ...],
    *,
    needs: tuple[str, ...],
    seconds: Callable[[Machine], float],
    applies: Callable[[Machine], bool] = lambda _machine: True,
    asked: Callable[[Machine], bool] | None = None,
) -> None:
    """Register checks that differ in the part they judge only: their pages share the rest of the file's docstring."""
    level, page = _place(judge.__module__)
    shared = page.partition("\n")[2]
    for row in rows:
        _FOUND[row.id] = Check(
            row.id, level, row.title, needs, seconds, _of_part(judge, row.part), f"{row.says}\n{shared}", applies, asked
        )


def _of_part(judge: Callable[[Machine, str], Finding], part: str) -> Callable[[Machine], Finding]:
    return lambda machine: judge(machine, part)


def _place(module: str) -> tuple[Level, str]:
    """Return the level and the docstring of a check's file."""
    level = next((level for level in LEVELS if level == module.split(".")[-2]), None)
    if level is None:
        raise ValueError(f"{module} is not below checks/<level>/")
    return level, (sys.modules[module].__doc__ or "").strip()


@cache
def checks() -> tuple[Check, ...]:
    """Return every check, by level and then by name."""
    for level in LEVELS:
        package = importlib.import_module(f"gpusetup.verify.checks.{level}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return tuple(sorted(_FOUND.values(), key=lambda found: (LEVELS.index(found.level), found.id)))


def find(identity: str) -> Check:
    """Return the check with this id."""
    return next(found for found in checks() if found.id == identity)


def from_items(items: list[Item], well: str, *, unit: str = "", nothing: str = "nothing to check") -> Finding:
    """Conclude from the parts: the gravest verdict, and the texts of the parts that caused it."""
    if not items:
        return Finding("skip", nothing)
    verdict = worst([item.verdict for item in items])
    grave = [item for item in items if item.verdict == verdict]
    text = well if verdict == "pass" else _join(grave)
    leading = grave[0]
    numbers = [
        item for item in grave if isinstance(item.measured, (int, float)) and isinstance(item.limit, (int, float))
    ]
    if numbers:
        # The part that is nearest to its floor, or furthest below it.
        leading = min(numbers, key=lambda item: float(item.measured or 0) / (float(item.limit or 0) or 1.0))
    return Finding(verdict, text, leading.measured, leading.expected, leading.limit, unit, tuple(items))


def _join(items: list[Item]) -> str:
    said: dict[str, list[str]] = {}
    for item in items:
        said.setdefault(item.text, []).append(item.subject)
    parts = []
    for text, subjects in said.items():
        names = ", ".join(subjects[:4]) + (f" and {len(subjects) - 4} more" if len(subjects) > 4 else "")
        parts.append(f"{names}: {text}")
    return "; ".join(parts[:3]) + (f"; and {len(parts) - 3} more" if len(parts) > 3 else "")
