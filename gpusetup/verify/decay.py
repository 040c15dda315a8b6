"""Slow decay: find figures that fall steadily over many runs, not by noise, by one bad run or in one step.

A figure is a finding when all of this holds, over at least twelve runs of one set of GPUs:

- the median of the last five runs is 3 % or more below the median of the first five;
- the fall is at least four times the figure's noise from run to run;
- the order of the runs shows a trend (Mann-Kendall's test, z of 3.5: one in 4,000 series of mere noise);
- it fell from the first third of the runs to the second and from that to the last: one step has another cause.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Item, Result, worst
from gpusetup.verify.baseline import LESS_IS_BETTER, MORE_IS_BETTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CHECK = "figures.decay"
FEWEST = 12
_ENDS = 5
_DROP, _NOISES, _SIGNIFICANT, _PART = 0.03, 4.0, 3.5, 0.2
_SAMPLE = 120
_TO_SIGMA = 1.4826
"""Factor from the median absolute deviation to the standard deviation of normal noise."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One figure of one part over time, oldest first."""

    check: str
    subject: str
    unit: str
    points: tuple[tuple[float, float], ...]
    """Seconds since 1970, and what was measured."""


@dataclass(frozen=True, kw_only=True)
class Decay:
    """How a figure fell, in its own unit."""

    series: Series
    before: float
    now: float
    share: float
    """The loss as a fraction: 0.07 for 7 %."""


def decay_of(series: Series) -> Decay | None:
    """Return how a figure fell; None if it did not fall steadily, or has too few runs."""
    values = [value for _, value in series.points if math.isfinite(value) and value > 0]
    if len(values) < FEWEST or series.unit not in MORE_IS_BETTER + LESS_IS_BETTER:
        return None
    good = values if series.unit in MORE_IS_BETTER else [1 / value for value in values]
    before, now = median(good[:_ENDS]), median(good[-_ENDS:])
    fall = before - now
    if len(good) > _SAMPLE:  # the tests below look at every pair
        good = [good[number * (len(good) - 1) // (_SAMPLE - 1)] for number in range(_SAMPLE)]
    if fall < _DROP * before or fall < _NOISES * _noise(good) or _trend(good) > -_SIGNIFICANT:
        return None
    third = len(good) // 3
    between = median(good[third:-third])
    if min(median(good[:third]) - between, between - median(good[-third:])) < _PART * fall:
        return None
    first, last = (median(values[:_ENDS]), median(values[-_ENDS:]))
    return Decay(series=series, before=first, now=last, share=fall / before)


def _noise(values: Sequence[float]) -> float:
    """Return the noise without the trend: from run to run or around the line through the values, the larger one."""
    steps = [after - before for before, after in itertools.pairwise(values)]
    middle = median(steps)
    stepwise = _TO_SIGMA * median(abs(step - middle) for step in steps) / math.sqrt(2)
    slope = median((b - a) / (j - i) for i, a in enumerate(values) for j, b in enumerate(values[i + 1 :], i + 1))
    left = [value - slope * number for number, value in enumerate(values)]
    middle = median(left)
    return max(stepwise, _TO_SIGMA * median(abs(value - middle) for value in left))


def _trend(values: Sequence[float]) -> float:
    """Return Mann-Kendall's z, negative for a fall: how far the rising and falling pairs are from chance."""
    score = sum((b > a) - (b < a) for number, a in enumerate(values) for b in values[number + 1 :])
    count = len(values)
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (score - (score > 0) + (score < 0)) / spread


def judged(series: Iterable[Series]) -> Result | None:
    """Return the result on all figures with enough runs; None without any."""
    enough = [one for one in series if len(one.points) >= FEWEST]
    if not enough:
        return None
    items = [_item(one, decay_of(one)) for one in enough]
    fallen = [item for item in items if item.verdict == "warn"]
    runs = max(len(one.points) for one in enough)
    text = "; ".join(f"{item.subject}: {item.text}" for item in fallen[:3])
    if len(fallen) > 3:
        text += f"; and {len(fallen) - 3} more"
    return Result(
        id=CHECK,
        level="full",
        verdict=worst([item.verdict for item in items]),
        text=text or f"no figure fell steadily over {counted(runs, 'run')}",
        items=tuple(fallen),
    )


def _item(series: Series, decay: Decay | None) -> Item:
    subject = f"{series.check} {series.subject}".strip()
    if decay is None:
        return Item(subject, "pass")
    text = (
        f"{decay.now:.4g} {series.unit}, {100 * decay.share:.0f} % worse than its first runs ({decay.before:.4g}),"
        f" falling over {counted(len(series.points), 'run')}"
    )
    return Item(subject, "warn", text, decay.now, decay.before)


def decay_page() -> str:
    """Return the page of `figures.decay`; it repeats the rules at the top of this file."""
    page = Path(__file__).with_name("data").joinpath("decay.txt").read_text(encoding="utf-8")
    return page.format(name=CHECK, rules=(__doc__ or "").strip().partition("\n\n")[2])
