"""The slow tests of the lab in turns: all of them take hours, so CI runs one turn for a commit and the next turn for the next one.

durations.json has the seconds of each file, measured or estimated, and those of functions where a file is longer than a turn. They only make the turns
even: pytest finds the tests, and what durations.json lacks counts as UNKNOWN.
"""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.lab.places import CHECKOUT, SOURCE
from tests.lab.process import run

DURATIONS: dict[str, int] = json.loads((SOURCE / "durations.json").read_text())
UNKNOWN = 120
TURN = 600
"""Seconds of tests in a turn, which two workers share."""


def found() -> list[str]:
    argv = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "lab and slow and not emulated", "tests/lab"]
    return [line for line in run(argv, cwd=CHECKOUT).stdout.splitlines() if "::" in line]


def divided(tests: Iterable[str], durations: Mapping[str, int] = DURATIONS) -> list[list[str]]:
    """Put each file, or each function with a duration of its own, into the turn that is shortest so far, beginning with the longest."""
    together = defaultdict(list)
    for test in tests:
        name = test.removeprefix("tests/lab/").partition("[")[0]
        together[name if name in durations else name.partition("::")[0]].append(test)
    seconds = {name: durations.get(name, UNKNOWN) for name in together}
    turns: list[list[str]] = [[] for _ in range(math.ceil(sum(seconds.values()) / TURN))]
    busy = [0] * len(turns)
    for name in sorted(together, key=lambda name: (-seconds[name], name)):
        shortest = busy.index(min(busy))
        turns[shortest] += together[name]
        busy[shortest] += seconds[name]
    return turns


def chosen(tests: Iterable[str], number: int) -> tuple[int, int, list[str]]:
    """The turn of this number, or of a commit of this number: which it is, of how many, and its tests."""
    turns = divided(tests)
    turn = (number - 1) % len(turns)
    return turn + 1, len(turns), turns[turn]
