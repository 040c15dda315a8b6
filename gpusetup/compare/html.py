"""The comparison as one HTML page: who stands out, and a heat map of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.compare.text import COLUMNS, rows
from gpusetup.report.page import page, stamp

if TYPE_CHECKING:
    from datetime import datetime

    from gpusetup.model.fleet import Cell, Column, CompareGroup, Comparison

__all__ = ["to_html"]

_FULL = 25.0
"""Percent off the median at which the colour is at its end."""
_OUT = 0.3


def to_html(comparison: Comparison, made: datetime) -> str:
    """Return the page."""
    hosts = sum(len(group.hosts) for group in comparison.groups)
    return page(
        "compare",
        title=f"Comparison of {hosts} hosts",
        made=stamp(made),
        comparison=comparison,
        heads=COLUMNS,
        rows=rows,
        ordered=_ordered,
        colour=_colour,
    )


def _ordered(group: CompareGroup) -> list[Column]:
    """Return the columns in which somebody stands out, then the figures, then what all have alike."""
    out = {item.column for item in group.outliers}
    return sorted(group.columns, key=lambda column: (column.id not in out, column.kind == "setting"))


def _colour(cell: Cell) -> str:
    """Return green at the median, red far from it and for who stands out; grey where there are too few to say."""
    if cell.deviation is None:
        return "#e5e7eb"
    share = max(0.0, 1.0 - abs(cell.deviation) / _FULL) * (_OUT if cell.standing == "outlier" else 1.0)
    return f"hsl({share * 140:.0f} 62% 76%)"
