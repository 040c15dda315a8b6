"""The table of docs/reference/support.md that is written by what was seen, one row a machine and source."""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from tests.lab.plays import ROOT

from .journey import STEPS, Step

PAGE = ROOT / "docs" / "reference" / "support.md"
COLUMNS = ("distribution and image", "machine", "source", "kernel", *STEPS, "seen")
HEAD = "| " + " | ".join(COLUMNS) + " |"
_RULE = "|" + "---|" * len(COLUMNS)
_KEY = 3
_LONGEST = 160


class Seen(NamedTuple):
    image: str
    machine: str
    source: str
    facts: Mapping[str, Any]
    day: date
    commit: str


def row(seen: Seen, steps: Sequence[Step]) -> str:
    system, kernel = seen.facts.get("os") or {}, seen.facts.get("kernel") or {}
    name = system.get("name") or "unknown"
    known = {step.name: step for step in steps}
    cells = [
        f"{name} ({seen.image})", seen.machine, seen.source, kernel.get("running") or "unknown",
        *(_cell(known[step]) for step in STEPS),
        f"{seen.day.isoformat()}, {seen.commit}",
    ]  # fmt: skip
    return "| " + " | ".join(" ".join(cell.replace("|", "/").split()) for cell in cells) + " |"


def _cell(step: Step) -> str:
    if step.code is None:
        return f"not run: {step.said}"
    code = str(step.code) if step.as_wanted else f"**exit {step.code}**"
    said = step.said if len(step.said) <= _LONGEST else step.said[: _LONGEST - 1] + "…"
    return f"{code}, {step.seconds:.0f} s" + (f"; {said}" if said else "")


def merged(text: str, rows: Iterable[str]) -> str:
    """Return the page with these rows, each in the place of an earlier one of the same machine and source."""
    lines = text.splitlines()
    if HEAD not in lines:
        raise ValueError(f"{PAGE.name} has lost its table: {HEAD}")
    first = lines.index(HEAD) + 2
    last = first
    while last < len(lines) and lines[last].startswith("|"):
        last += 1
    known = {_key(line): line for line in [*lines[first:last], *rows]}
    return "\n".join([*lines[: first - 1], _RULE, *(known[key] for key in sorted(known)), *lines[last:]]) + "\n"


def _key(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip("|").split("|")[:_KEY])


def write(rows: Iterable[str]) -> None:
    PAGE.write_text(merged(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


def commit() -> str:
    """Return the commit that was tried, with a mark where the checkout differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return (git("rev-parse", "--short=10", "HEAD") or "no commit") + (" with changes" if changed else "")
