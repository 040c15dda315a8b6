"""The comparison as one HTML page: who stands out, and a heat map of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup import __version__
from gpusetup.compare.text import shown
from gpusetup.report.page import template

if TYPE_CHECKING:
    from datetime import datetime

    from gpusetup.model.compare import Cell, Comparison

__all__ = ["to_html"]

_FULL = 25.0
"""Percent off the median at which the colour is at its end."""


def to_html(comparison: Comparison, made: datetime) -> str:
    """Return the page."""
    hosts = sum(len(group.hosts) for group in comparison.groups)
    return template("compare.html.j2").render(
        comparison=comparison,
        title=f"Comparison of {hosts} hosts",
        made=made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        program=f"gpusetup {__version__}",
        titles={column.id: column.title for group in comparison.groups for column in group.columns},
        shown=shown,
        colour=_colour,
    )


def _colour(cell: Cell) -> str:
    """Return green at the median and red far from it; grey where there are too few to say."""
    if cell.deviation is None:
        return "#e5e7eb"
    share = max(0.0, 1.0 - abs(cell.deviation) / _FULL)
    return f"hsl({share * 140:.0f} 62% 76%)"
