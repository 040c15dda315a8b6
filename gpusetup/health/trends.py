"""Pictures of figures over time, as the report draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Curve, Curves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusetup.verify.decay import Series

__all__ = ["pictures"]

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
