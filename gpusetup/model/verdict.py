"""The result of a check on a host: a verdict, measured and expected values, and the figures behind them."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Verdict = Literal["pass", "warn", "fail", "skip", "unsupported"]
Level = Literal["quick", "smoke", "full", "stress"]
Blame = Literal["", "gpu", "driver", "host", "stack", "environment", "job", "gpusetup"]
"""What is to blame for a failure or warning: the device, the driver, the machine around it, what gpusetup installed,
the user's own environment, a running job, or gpusetup itself, which could not judge."""
Figure = float | int | str | None

_LEVELS: tuple[Level, ...] = ("quick", "smoke", "full", "stress")
_GRAVITY: tuple[Verdict, ...] = ("fail", "warn", "pass", "unsupported", "skip")


def levels_up_to(level: Level) -> tuple[Level, ...]:
    """Return this level and the levels that it includes."""
    return _LEVELS[: _LEVELS.index(level) + 1]


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the most severe verdict; no verdicts at all is a skip, never a pass."""
    return min(verdicts, key=_GRAVITY.index, default="skip")


class Item(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One part of a check: a GPU, a link, a pair, a message size."""

    subject: str
    verdict: Verdict
    text: str = ""
    measured: Figure = None
    expected: Figure = None
    limit: Figure = None
    blame: Blame = ""


class Grid(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="grid"):
    """A matrix of figures, drawn as a heat map."""

    title: str
    unit: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    notes: tuple[tuple[str, ...], ...] = ()
    """A note for each value, such as the kind of link."""
    expected: float | None = None
    limit: float | None = None


class Curve(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a diagram."""

    name: str
    points: tuple[tuple[float, float], ...]
    expected: bool = False
    """Expected rather than measured values; drawn as a guide."""


class Curves(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="curves"):
    """A diagram of figures over a quantity."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Curve, ...]
    x_log: bool = False
    x_bytes: bool = False
    y_log: bool = False


class Finding(Struct, frozen=True):
    """The conclusion of a check."""

    verdict: Verdict
    text: str
    measured: Figure = None
    expected: Figure = None
    limit: Figure = None
    unit: str = ""
    items: tuple[Item, ...] = ()
    figures: tuple[Grid | Curves, ...] = ()
    blame: Blame = ""
    """Empty: the one of the check's family."""


class Result(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of one check on one host."""

    id: str
    level: Level
    verdict: Verdict
    text: str
    measured: Figure = None
    expected: Figure = None
    limit: Figure = None
    unit: str = ""
    seconds: float = 0.0
    items: tuple[Item, ...] = ()
    figures: tuple[Grid | Curves, ...] = ()
    blame: Blame = ""
    """Empty unless it failed or warns."""
