"""Render a comparison: the outliers as rows of text, or everything as an HTML page with a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.report.page import page, stamp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gpusetup.model.fleet import Cell, Column, CompareGroup, Comparison, Outlier

COLUMNS = ("what", "usual", "has", "who", "off by")
_NAMED = 4


def title(group: CompareGroup) -> str:
    """Return the heading of a group."""
    count = len(group.hosts)
    if count == 1:
        return f"{group.name}: {group.hosts[0]} alone, nothing to compare it with"
    number = len(group.outliers)
    told = f"{number} value{'s' if number > 1 else ''} stand{'' if number > 1 else 's'} out" if number else "all alike"
    return f"{group.name}: {count} hosts, {told}"


def rows(group: CompareGroup) -> list[tuple[str, ...]]:
    """Return a row per outlying value with all its hosts; high, or low, figures of one host share a row."""
    titles = {column.id: column.title for column in group.columns}
    units = {column.id: column.unit for column in group.columns}
    alike: dict[tuple[object, ...], list[Outlier]] = {}
    for item in group.outliers:
        own = item.value if item.deviation is None else (item.host, item.deviation > 0)
        alike.setdefault((item.column, own), []).append(item)
    return [
        (
            items[0].column if units[items[0].column] else titles[items[0].column],
            "no majority" if items[0].usual is None else f"{shown(items[0].usual)} {units[items[0].column]}".strip(),
            _span([shown(item.value) for item in items]),
            _who(items),
            _span([f"{item.deviation:+.1f}" for item in items if item.deviation is not None], " %"),
        )
        for items in alike.values()
    ]


def trailer(group: CompareGroup) -> str:
    """Return a line that counts what does not stand out."""
    out = {item.column for item in group.outliers}
    settings = sum(column.kind == "setting" and column.id not in out for column in group.columns)
    figures = [column for column in group.columns if column.kind == "figure"]
    same = sum(column.id not in out for column in figures)
    told = f"alike: {settings} settings" + (f", {same} of {len(figures)} figures" if figures else "")
    return told if figures else f"{told}; no figures are known (--figures, or `gpusetup verify`)"


def shown(value: str | float) -> str:
    """Return a value as text, a figure with four significant digits."""
    return value if isinstance(value, str) else f"{value:.4g}"


def _span(told: Sequence[str], unit: str = "") -> str:
    """Return the range of the figures in a row."""
    if len({*told}) < 2:
        return f"{told[0]}{unit}" if told else ""
    return f"{min(told, key=float)} to {max(told, key=float)}{unit}"


def _who(items: Sequence[Outlier]) -> str:
    hosts: dict[str, list[str]] = {}
    for item in items:
        hosts.setdefault(item.host, []).append(item.subject)
    named = [f"{host} {_places(places)}".strip() for host, places in list(hosts.items())[:_NAMED]]
    return ", ".join(named) + (f" and {len(hosts) - _NAMED} more hosts" if len(hosts) > _NAMED else "")


def _places(places: Sequence[str]) -> str:
    if len(places) > 2 and all(place.startswith("GPU ") for place in places):
        return f"({len(places)} GPUs)"
    return ", ".join(place for place in places if place)


_FULL = 25.0
"""Percent off the median at which the colour is fully red."""
_OUT = 0.3


def to_html(comparison: Comparison, made: datetime) -> str:
    """Return the HTML page."""
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
    """Return the columns with outliers first, then the other figures, then the other settings."""
    out = {item.column for item in group.outliers}
    return sorted(group.columns, key=lambda column: (column.id not in out, column.kind == "setting"))


def _colour(cell: Cell) -> str:
    """Return green at the median, red far from it and for outliers, grey without a deviation."""
    if cell.deviation is None:
        return "#e5e7eb"
    share = max(0.0, 1.0 - abs(cell.deviation) / _FULL) * (_OUT if cell.standing == "outlier" else 1.0)
    return f"hsl({share * 140:.0f} 62% 76%)"
