"""Who stands out: of settings, whoever lacks what more than half have; of figures, whoever is far from the median."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Apart", "Subject", "figures_apart", "settings_apart"]

Subject = tuple[str, str]
"""A host, and which of its GPUs or measurements; empty: the host itself."""

_SPREADS = 3.5
"""How many times the usual spread a figure may be away from the median: 1.4826 times the median deviation, which is
the standard deviation of measurements that scatter by chance."""
_SCALE = 1.4826
_FLOOR = {"µs": 25.0}
_FLOOR_ELSE = 5.0
"""Percent that a figure may be away in any case: identical hosts have next to no spread, and still flutter."""
_FEWEST = 3
"""So many figures make a median that means something."""


@dataclass(frozen=True)
class Apart:
    """What is usual, and who is not; a figure's deviation is in percent of the median."""

    usual: str | float | None
    compared: int
    alike: int
    outliers: tuple[Subject, ...]
    deviations: Mapping[Subject, float]


def settings_apart(values: Mapping[Subject, str | None]) -> Apart:
    """Compare settings; what is not known is not compared. Without a majority everybody stands out."""
    known = {subject: value for subject, value in values.items() if value is not None}
    counts = Counter(known.values())
    common, alike = counts.most_common(1)[0] if counts else ("", 0)
    if len(counts) <= 1:
        return Apart(common or None, len(known), alike, (), {})
    usual = common if 2 * alike > len(known) else None
    outliers = tuple(subject for subject, value in known.items() if value != usual)
    return Apart(usual, len(known), alike if usual is not None else 0, outliers, {})


def figures_apart(values: Mapping[Subject, float], unit: str) -> Apart:
    """Compare figures of one kind."""
    if len(values) < _FEWEST:
        return Apart(None, len(values), len(values), (), {})
    middle = median(values.values())
    if middle == 0:
        return Apart(middle, len(values), len(values), (), {})
    deviations = {subject: 100.0 * (value - middle) / abs(middle) for subject, value in values.items()}
    spread = _SCALE * median(abs(deviation) for deviation in deviations.values())
    allowed = max(_SPREADS * spread, _FLOOR.get(unit, _FLOOR_ELSE))
    outliers = tuple(subject for subject, deviation in deviations.items() if abs(deviation) > allowed)
    return Apart(middle, len(values), len(values) - len(outliers), outliers, deviations)
