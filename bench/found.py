"""Results of benchmarks: figures, those of a plain tool in the same run, bounds; as a table, a picture and a record.

`python -m bench --record NAME` writes `bench/results/NAME.json`; `python -m tools.pictures` makes
docs/reference/benchmarks.md and its pictures of these.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Literal

import msgspec

from gpusetup.report.topology import element, line_of, text_at

__all__ = ["RESULTS", "Found", "Record", "Row", "framed", "machine", "page", "picture", "records", "table"]

RESULTS = Path(__file__).resolve().parent / "results"
_STYLE = """text { font: 13px system-ui, sans-serif; fill: #1f2328; } .name { font-weight: 600; }
.soft { fill: #59636e; } .back { fill: #ffffff; } .ours { fill: #2563eb; } .plain { fill: #9ca3af; }
.pale { opacity: 0.35; }
.bound { stroke: #b91c1c; stroke-width: 2; }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc; } .soft { fill: #9198a1; } .back { fill: #151b23; }
.ours { fill: #60a5fa; } .plain { fill: #6b7280; } .bound { stroke: #fca5a5; } }"""
_LEFT, _BARS, _WIDTH = 330, 290, 900


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure."""

    what: str
    value: float
    unit: str
    plain: float | None = None
    """The plain tool's figure in the same run."""
    bound: float | None = None
    of: Literal["value", "ratio"] = "value"
    """Whether the bound is on the value or on the ratio."""
    least: bool = False
    """Whether the bound is a minimum."""

    @property
    def ratio(self) -> float | None:
        """The value as a multiple of the plain tool's."""
        return self.value / self.plain if self.plain else None

    @property
    def limit(self) -> float | None:
        """The bound in the figure's own unit."""
        if self.bound is None or self.of == "value":
            return self.bound
        return None if self.plain is None else self.bound * self.plain

    @property
    def kept(self) -> bool | None:
        """Whether the bound was kept; None without a bound."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.least else self.value <= self.limit

    def told(self) -> str:
        """Return the figure as text."""
        times = f", {self.ratio:.3g} times" if self.ratio is not None else ""
        return f"{_short(self.value)} {self.unit}{times}"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a benchmark returns."""

    plain: str = ""
    """The plain tool for comparison."""
    rows: tuple[Row, ...]
    faults: tuple[str, ...] = ()
    """Faults other than missed bounds."""

    @property
    def missed(self) -> bool:
        return bool(self.faults) or any(row.kept is False for row in self.rows)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded result, with place and time."""

    name: str
    about: str
    date: str
    machine: str
    found: Found


def machine() -> str:
    """Return this machine's description and load."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "processor")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return f"{cores} cores of {model}, {memory:.0f} GiB, Python {platform.python_version()}; load {load:.0f} at the end"


def records() -> list[Record]:
    """Return all records except the comparison with peers, which has its own form and page."""
    files = (path for path in sorted(RESULTS.glob("*.json")) if path.stem != "peers")
    return [msgspec.json.decode(path.read_bytes(), type=Record) for path in files]


def table(found: Found) -> str:
    """Return the rows as a Markdown table without empty columns."""
    columns: dict[str, list[str]] = {
        "what": [row.what for row in found.rows],
        "measured": [f"{_short(row.value)} {row.unit}" for row in found.rows],
        found.plain or "plain": ["" if row.plain is None else f"{_short(row.plain)} {row.unit}" for row in found.rows],
        "ratio": ["" if row.ratio is None else f"{row.ratio:.2f}" for row in found.rows],
        "bound": [_bound(row) for row in found.rows],
    }
    shown = {title: cells for title, cells in columns.items() if any(cells)}
    lines = [f"| {' | '.join(shown)} |", f"|{'---|' * len(shown)}"]
    lines += [f"| {' | '.join(row)} |" for row in zip(*shown.values(), strict=True)]
    return "\n".join(lines) + "\n"


def _bound(row: Row) -> str:
    if row.bound is None:
        return ""
    which = "at least " if row.least else "at most "
    unit = " times" if row.of == "ratio" else f" {row.unit}"
    return f"{which}{_short(row.bound)}{unit}: {'kept' if row.kept else '**missed**'}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def picture(found: Found) -> str:
    """Return a bar chart with one scale per unit: the plain tool's bar below, the bound as a line."""
    limits = [row.limit for row in found.rows]
    scales = [_scale(row.unit, found) for row in found.rows]
    parts, y = [], 10
    for row, scale, limit in zip(found.rows, scales, limits, strict=True):
        parts.append(text_at(12, y + 14, row.what, "name", "start"))
        tall = 30 if row.plain is not None else 18
        parts.append(_bar(y, row.value / scale, "ours"))
        if row.plain is not None:
            parts.append(_bar(y + 14, row.plain / scale, "plain"))
        if limit is not None and limit <= scale:
            x = _LEFT + _BARS * limit / scale
            parts.append(line_of(x, y - 2, x, y + tall - 2, class_="bound"))
        parts.append(text_at(_LEFT + _BARS + 12, y + 12, row.told(), "soft", "start"))
        y += tall + 10
    kinds = [("ours", "measured")] + ([("plain", found.plain)] if any(row.plain for row in found.rows) else [])
    x = 12.0
    for kind, text in kinds:
        parts.append(element("rect", x=x, y=y + 4, width=14, height=12, class_=kind))
        parts.append(text_at(x + 20, y + 15, text, "soft", "start"))
        x += 60 + 7 * len(text)
    if any(limit is not None for limit in limits):
        parts.append(line_of(x, y + 2, x, y + 18, class_="bound"))
        parts.append(text_at(x + 8, y + 15, "bound", "soft", "start"))
    return framed(parts, y + 28, "; ".join(f"{row.what}: {row.told()}" for row in found.rows))


def _scale(unit: str, found: Found) -> float:
    """Return the value of the full width; bars without a bound may exceed it if others have one."""
    rows = [row for row in found.rows if row.unit == unit]
    bounded = [row for row in rows if row.limit is not None] or rows
    near = [row.limit for row in bounded if row.limit is not None and row.limit <= 20 * row.value]
    return max(*(max(row.value, row.plain or 0) for row in bounded), *near, 1e-9)


def _bar(y: float, share: float, kind: str) -> str:
    return element(
        "rect", x=_LEFT, y=y, width=f"{min(_BARS + 8.0, max(1.0, _BARS * share)):.1f}", height=13, class_=kind
    )


def framed(parts: list[str], height: int, label: str) -> str:
    """Return a picture with its own background, for light and dark pages."""
    ground = element("rect", width=_WIDTH, height=height, rx=8, class_="back")
    return element(
        "svg", "".join([element("style", _STYLE), ground, *parts]), xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}", width=_WIDTH, role="img", aria_label=label,
    )  # fmt: skip


def page(found: list[Record]) -> str:
    """Return the page of the documentation."""
    return _PAGE.format(parts="\n".join(map(_part, found)))


def _part(record: Record) -> str:
    return "\n".join(
        [
            f"## {record.name}",
            "",
            record.about,
            "",
            f"Measured {record.date}: {record.machine}.",
            "",
            table(record.found),
            f"![The table as bars](../benchmarks/{record.name}.svg)",
            "",
        ]
    )


_PAGE = """\
# Benchmarks

What gpusetup itself costs, beside a plain tool in the same run on the same machine. Compare the ratios: the seconds
depend on the machine. The cost beside NVIDIA's role and DeepOps is in [peers](peers.md), figures of GPUs are in
[measurements](measurements.md).

`./dev bench NAME` measures again, `--list` names all benchmarks, `--record NAME` writes `bench/results`, and
`python -m tools.pictures` writes this page from those.

{parts}"""
