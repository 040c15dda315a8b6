"""Figures as inline SVG: heat maps and diagrams that need no script and no network."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.model.verdict import Curves, Grid

_CELL = 58
_LEFT = 64
_TOP = 34
_PALETTE = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#db2777", "#0891b2", "#65a30d", "#b91c1c")


def element(name: str, body: str = "", /, **attributes: object) -> str:
    """Return an element; attribute values are escaped, the body is markup already."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{written}>{body}</{name}>"


def text_at(x: float, y: float, text: str, kind: str = "axis", anchor: str = "middle", **more: object) -> str:
    """Return a text at a place."""
    return element("text", escape(text), x=f"{x:.1f}", y=f"{y:.1f}", class_=kind, text_anchor=anchor, **more)


def line_of(x1: float, y1: float, x2: float, y2: float, **more: object) -> str:
    """Return a line between two places."""
    return element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", **more)


def grid_svg(grid: Grid) -> str:
    """Return a heat map: green at what is expected, red at the floor and below."""
    width, height = _LEFT + _CELL * len(grid.columns) + 8, _TOP + _CELL * len(grid.rows) + 8
    parts = [text_at(_LEFT + _CELL * (number + 0.5), _TOP - 10, name) for number, name in enumerate(grid.columns)]
    for row, name in enumerate(grid.rows):
        y = _TOP + _CELL * row
        parts.append(text_at(_LEFT - 8, y + _CELL / 2 + 4, name, anchor="end"))
        parts += [_cell(grid, row, column, _LEFT + _CELL * column, y) for column in range(len(grid.columns))]
    box = f"0 0 {width} {height}"
    return element("svg", "".join(parts), viewBox=box, width=width, height=height, role="img", aria_label=grid.title)


def _cell(grid: Grid, row: int, column: int, x: float, y: float) -> str:
    value = grid.values[row][column]
    note = grid.notes[row][column] if row < len(grid.notes) and column < len(grid.notes[row]) else ""
    colour = _colour(grid, value)
    box = element("rect", x=x + 1, y=y + 1, width=_CELL - 2, height=_CELL - 2, rx=4, fill=colour)
    if value is None:
        return box
    shown = ("yes" if value else "no") if not grid.unit else f"{value:.0f}"
    title = f"{grid.rows[row]} to {grid.columns[column]}: {value:g} {grid.unit} {note}".strip()
    middle = x + _CELL / 2
    parts = [element("title", escape(title)), box, text_at(middle, y + _CELL / 2 + 1, shown, "value")]
    if note:
        parts.append(text_at(middle, y + _CELL / 2 + 16, note, "note"))
    return element("g", "".join(parts))


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
    xs, ys = [x for x, _ in points], [y for _, y in points] + ([] if curves.y_log else [0.0])
    across = _scale(xs, left, width - right, log=curves.x_log)
    up = _scale(ys, height - bottom, top, log=curves.y_log)
    parts = []
    for value in _ticks(ys, log=curves.y_log):
        parts.append(line_of(left, up(value), width - right, up(value), class_="grid"))
        parts.append(text_at(left - 8, up(value) + 4, f"{value:g}", anchor="end"))
    parts += [text_at(across(value), height - bottom + 18, _x_text(curves, value)) for value in _x_ticks(curves, xs)]
    parts.append(text_at((left + width - right) / 2, height - 8, curves.x_label))
    middle = (height - bottom) / 2
    parts.append(text_at(14, middle, curves.y_label, transform=f"rotate(-90 14 {middle:g})"))
    for number, line in enumerate(curves.lines):
        style = {"stroke": "#6b7280" if line.expected else _PALETTE[number % len(_PALETTE)]}
        if line.expected:
            style["stroke_dasharray"] = "5 4"
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.points)
        parts.append(element("polyline", points=path, fill="none", stroke_width=2, **style))
        for x, y in () if line.expected else line.points:
            title = element("title", escape(f"{line.name}: {y:g} at {_x_text(curves, x)}"))
            parts.append(element("circle", title, cx=f"{across(x):.1f}", cy=f"{up(y):.1f}", r=3, fill=style["stroke"]))
        x, y = left + number % 4 * 140, height + 14 + number // 4 * 22
        parts.append(line_of(x, y - 4, x + 22, y - 4, stroke_width=3, **style))
        parts.append(text_at(x + 28, y, line.name, anchor="start"))
    box = f"0 0 {width} {height + 22 * _legend_rows(curves)}"
    return element("svg", "".join(parts), viewBox=box, width=500, role="img", aria_label=curves.title)


def _x_text(curves: Curves, value: float) -> str:
    return _bytes(value) if curves.x_bytes else f"{value:g}"


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
