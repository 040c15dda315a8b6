"""Figures as inline SVG: heat maps and diagrams that need no script and no network."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.model.verdict import Curves, Grid

__all__ = ["curves_svg", "grid_svg"]

_CELL = 58
_LEFT = 64
_TOP = 34
_PALETTE = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#db2777", "#0891b2", "#65a30d", "#b91c1c")


def grid_svg(grid: Grid) -> str:
    """Return a heat map: green at what is expected, red at the floor and below."""
    width, height = _LEFT + _CELL * len(grid.columns) + 8, _TOP + _CELL * len(grid.rows) + 8
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{escape(grid.title)}">'
    ]
    for number, name in enumerate(grid.columns):
        parts.append(
            f'<text x="{_LEFT + _CELL * (number + 0.5):g}" y="{_TOP - 10}" class="axis" text-anchor="middle">{escape(name)}</text>'
        )
    for row, name in enumerate(grid.rows):
        y = _TOP + _CELL * row
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + _CELL / 2 + 4:g}" class="axis" text-anchor="end">{escape(name)}</text>'
        )
        for column in range(len(grid.columns)):
            parts.append(_cell(grid, row, column, _LEFT + _CELL * column, y))
    return "".join([*parts, "</svg>"])


def _cell(grid: Grid, row: int, column: int, x: float, y: float) -> str:
    value = grid.values[row][column]
    note = grid.notes[row][column] if row < len(grid.notes) and column < len(grid.notes[row]) else ""
    box = f'<rect x="{x + 1:g}" y="{y + 1:g}" width="{_CELL - 2}" height="{_CELL - 2}" rx="4" fill="{_colour(grid, value)}"/>'
    if value is None:
        return box
    shown = ("yes" if value else "no") if not grid.unit else f"{value:.0f}"
    title = f"{grid.rows[row]} to {grid.columns[column]}: {value:g} {grid.unit} {note}".strip()
    middle = x + _CELL / 2
    label = f'<text x="{middle:g}" y="{y + _CELL / 2 + 1:g}" class="value" text-anchor="middle">{shown}</text>'
    beside = (
        f'<text x="{middle:g}" y="{y + _CELL / 2 + 16:g}" class="note" text-anchor="middle">{escape(note)}</text>'
        if note
        else ""
    )
    return f"<g><title>{escape(title)}</title>{box}{label}{beside}</g>"


def _colour(grid: Grid, value: float | None) -> str:
    if value is None:
        return "#e5e7eb"
    if not grid.unit:
        return "#86efac" if value else "#fca5a5"
    low = grid.limit if grid.limit is not None else 0.0
    high = grid.expected if grid.expected is not None else max((cell or 0.0) for line in grid.values for cell in line)
    share = 1.0 if high <= low else max(0.0, min(1.0, (value - low) / (high - low)))
    return f"hsl({share * 140:.0f} 62% 76%)"


def curves_svg(curves: Curves) -> str:
    """Return a diagram with its legend."""
    width, height, left, right, top, bottom = 640, 330, 62, 16, 14, 48
    points = [point for line in curves.lines for point in line.points]
    if not points:
        return ""
    across = _scale([x for x, _ in points], left, width - right, log=curves.x_log)
    up = _scale([y for _, y in points] + ([] if curves.y_log else [0.0]), height - bottom, top, log=curves.y_log)
    parts = [
        f'<svg viewBox="0 0 {width} {height + 22 * _legend_rows(curves)}" width="{width}" role="img" aria-label="{escape(curves.title)}">'
    ]
    for value in _ticks([y for _, y in points] + ([] if curves.y_log else [0.0]), log=curves.y_log):
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{up(value):.1f}" y2="{up(value):.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 8}" y="{up(value) + 4:.1f}" class="axis" text-anchor="end">{value:g}</text>')
    for value in _x_ticks(curves, [x for x, _ in points]):
        label = _bytes(value) if curves.x_bytes else f"{value:g}"
        parts.append(
            f'<text x="{across(value):.1f}" y="{height - bottom + 18}" class="axis" text-anchor="middle">{label}</text>'
        )
    parts.append(
        f'<text x="{(left + width - right) / 2:g}" y="{height - 8}" class="axis" text-anchor="middle">{escape(curves.x_label)}</text>'
    )
    parts.append(
        f'<text x="14" y="{(height - bottom) / 2:g}" class="axis" text-anchor="middle" transform="rotate(-90 14 {(height - bottom) / 2:g})">{escape(curves.y_label)}</text>'
    )
    for number, line in enumerate(curves.lines):
        colour = "#6b7280" if line.expected else _PALETTE[number % len(_PALETTE)]
        dash = ' stroke-dasharray="5 4"' if line.expected else ""
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if not line.expected:
            for x, y in line.points:
                parts.append(
                    f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}"><title>{escape(line.name)}: {y:g} at {_bytes(x) if curves.x_bytes else f"{x:g}"}</title></circle>'
                )
        column, row = number % 4, number // 4
        x, y = left + column * 140, height + 14 + row * 22
        parts.append(
            f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="3"{dash}/><text x="{x + 28}" y="{y}" class="axis">{escape(line.name)}</text>'
        )
    return "".join([*parts, "</svg>"])


def _legend_rows(curves: Curves) -> int:
    return (len(curves.lines) + 3) // 4


def _scale(values: list[float], start: float, end: float, *, log: bool) -> Callable[[float], float]:
    low, high = min(values), max(values)
    if log:
        floor = min((value for value in values if value > 0), default=1.0)
        low, high = math.log(floor), math.log(max(high, floor))
    else:
        high *= 1.05 if high > 0 else 1.0
    span = (high - low) or 1.0

    def place(value: float) -> float:
        position = math.log(max(value, math.exp(low))) if log else value
        return start + (end - start) * (position - low) / span

    return place


def _ticks(values: list[float], *, log: bool) -> list[float]:
    low, high = min(values), max(values)
    if log:
        first = math.floor(math.log10(max(low, 1e-3)))
        marks = [
            factor * 10.0**power
            for power in range(first, math.ceil(math.log10(max(high, 1e-3))) + 1)
            for factor in (1, 2, 5)
        ]
        return [mark for mark in marks if low <= mark <= high]
    step = 10 ** math.floor(math.log10((high - low) or 1.0))
    step = next(
        (step * factor for factor in (0.1, 0.2, 0.5, 1, 2, 5) if (high - low) / (step * factor) <= 7), step * 10
    )
    return [round(number * step, 6) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _x_ticks(curves: Curves, values: list[float]) -> list[float]:
    if curves.x_bytes:
        return sorted({value for line in curves.lines[:1] for value, _ in line.points} or set(values))
    return _ticks(values, log=curves.x_log)


def _bytes(value: float) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale * 0.99:
            return f"{value / scale:.3g} {unit}"
    return f"{value:g} B"
