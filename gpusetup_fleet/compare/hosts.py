"""Find what sets hosts apart: settings that differ from the majority, figures far from the median."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import NamedTuple

from gpusetup.facts.properties import GPU, HOST, gpus_named, summary
from gpusetup.model import stamp
from gpusetup.model.facts import Facts, HostFacts
from gpusetup.model.verdict import Result
from gpusetup.report.html import page
from gpusetup.verify.registry import checks
from gpusetup_fleet.model.fleet import Cell, Column, CompareGroup, Comparison, Outlier, Standing

Subject = tuple[str, str]
"""A host and one of its GPUs or measurements; empty means the host itself."""

_SPREADS = 3.5
"""How many usual spreads a figure may lie from the median. The usual spread is 1.4826 times the median deviation: the
standard deviation of normally distributed measurements."""
_SCALE = 1.4826
_FLOOR = {"µs": 25.0}
_FLOOR_ELSE = 5.0
"""Percent by which a figure may always differ: identical hosts have almost no spread, yet still fluctuate."""
_FEWEST = 3
"""The fewest figures whose median is meaningful."""


@dataclass(frozen=True)
class Apart:
    """The usual value and the outliers; a figure's deviation is in percent of the median."""

    usual: str | float | None
    compared: int
    alike: int
    outliers: tuple[Subject, ...]
    deviations: Mapping[Subject, float]


def differing_settings(values: Mapping[Subject, str | None]) -> Apart:
    """Compare settings, leaving out unknown ones. Without a majority, all are outliers."""
    known = {subject: value for subject, value in values.items() if value is not None}
    counts = Counter(known.values())
    common, alike = counts.most_common(1)[0] if counts else ("", 0)
    if len(counts) <= 1:
        return Apart(common or None, len(known), alike, (), {})
    usual = common if 2 * alike > len(known) else None
    outliers = tuple(subject for subject, value in known.items() if value != usual)
    return Apart(usual, len(known), alike if usual is not None else 0, outliers, {})


def differing_figures(values: Mapping[Subject, float], unit: str) -> Apart:
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


UNITS = ("GB/s", "TFLOP/s", "µs")
_NUMBER = re.compile(r"\bGPU \d+")


def compared(facts: Facts, figures: Mapping[str, Sequence[Result]]) -> Comparison:
    """Compare hosts that have the same GPUs, with the known figures of their verifications."""
    kinds: dict[str, dict[str, HostFacts]] = {}
    for name, host in facts.hosts.items():
        kinds.setdefault(gpus_named(host), {})[name] = host
    groups = [
        _group(kind, hosts, {name: figures[name] for name in hosts if name in figures}) for kind, hosts in kinds.items()
    ]
    groups.sort(key=lambda group: (-len(group.hosts), group.name))
    return Comparison(ok=facts.ok, groups=tuple(groups), failures=facts.failures)


def _group(kind: str, hosts: Mapping[str, HostFacts], figures: Mapping[str, Sequence[Result]]) -> CompareGroup:
    made = _Made([], [])
    for item in HOST:
        own: dict[Subject, str | None] = {(name, ""): item.read(host) for name, host in hosts.items()}
        made.setting(item.id, item.title, own)
    for part in GPU:
        each: dict[Subject, str | None] = {
            (name, f"GPU {index}"): part.read(gpu)
            for name, host in hosts.items()
            for index, gpu in enumerate(host.gpus)
        }
        made.setting(part.id, part.title, each)
    for check in checks():
        values, unit = _measured(check.id, figures)
        made.figure(check.id, check.title, unit, values, tuple(hosts))
    return CompareGroup(name=kind, hosts=tuple(hosts), columns=tuple(made.columns), outliers=tuple(made.outliers))


class _Made(NamedTuple):
    """The columns and outliers collected so far."""

    columns: list[Column]
    outliers: list[Outlier]

    def setting(self, name: str, title: str, values: Mapping[Subject, str | None]) -> None:
        """Add a column if any value is known."""
        if not any(value is not None for value in values.values()):
            return
        apart = differing_settings(values)
        grouped: dict[str, list[Subject]] = {}
        for subject in values:
            grouped.setdefault(subject[0], []).append(subject)
        cells = {
            host: Cell(text=summary([values[subject] for subject in own]), standing=_standing(own, values, apart))
            for host, own in grouped.items()
        }
        self.columns.append(Column(id=name, title=title, kind="setting", usual=apart.usual, cells=cells))
        self.outliers.extend(_outlier(subject, name, values[subject] or "", apart) for subject in apart.outliers)

    def figure(self, name: str, title: str, unit: str, values: Mapping[Subject, float], hosts: tuple[str, ...]) -> None:
        """Add a column if any host measured it."""
        if not values:
            return
        judged = _judged(values, unit)
        cells = {host: _figure_cell(host, values, judged, unit) for host in hosts}
        medians = {apart.usual for apart in judged.values()}
        usual = medians.pop() if len(medians) == 1 else None
        self.columns.append(Column(id=name, title=title, kind="figure", unit=unit, usual=usual, cells=cells))
        far = [(subject, apart) for subject, apart in judged.items() if subject in apart.outliers]
        self.outliers.extend(_outlier(subject, name, values[subject], apart) for subject, apart in far)


def _measured(name: str, figures: Mapping[str, Sequence[Result]]) -> tuple[dict[Subject, float], str]:
    """Return a check's figures and their unit."""
    results = [(host, result) for host, told in figures.items() for result in told if result.id == name]
    compared = [(host, result) for host, result in results if result.unit in UNITS]
    values = {
        (host, item.subject): float(item.measured)
        for host, result in compared
        for item in result.items
        if isinstance(item.measured, (int, float)) and item.blame != "job" and item.verdict != "unsupported"
    }
    return values, compared[0][1].unit if compared else ""


def _standing(subjects: Sequence[Subject], values: Mapping[Subject, str | None], apart: Apart) -> Standing:
    if any(subject in apart.outliers for subject in subjects):
        return "outlier"
    return "unknown" if all(values[subject] is None for subject in subjects) else "usual"


def _judged(values: Mapping[Subject, float], unit: str) -> dict[Subject, Apart]:
    """Compare each place with the same place of other hosts, or with all GPUs of fewer than three hosts."""
    kinds: dict[str, dict[Subject, float]] = {}
    several = len({host for host, _ in values}) >= 3
    for (host, place), value in values.items():
        kinds.setdefault(place if several else _NUMBER.sub("GPU", place), {})[host, place] = value
    judged: dict[Subject, Apart] = {}
    for alike in kinds.values():
        apart = differing_figures(alike, unit)
        judged |= dict.fromkeys(alike, apart)
    return judged


def _figure_cell(host: str, values: Mapping[Subject, float], judged: Mapping[Subject, Apart], unit: str) -> Cell:
    """Return the furthest outlier, or else the best figure: a check may measure many sizes."""
    own = [subject for subject in values if subject[0] == host]
    if not own:
        return Cell(text="", standing="unknown")
    out = [subject for subject in own if subject in judged[subject].outliers]
    furthest = max(out or own, key=lambda subject: abs(judged[subject].deviations.get(subject, 0.0)))
    deviation = judged[furthest].deviations.get(furthest)
    best = min if unit == "µs" else max
    return Cell(
        text=f"{values[furthest] if out else best(values[subject] for subject in own):.4g}",
        standing="outlier" if out else "usual",
        deviation=None if deviation is None else round(deviation, 1),
    )


def _outlier(subject: Subject, column: str, value: str | float, apart: Apart) -> Outlier:
    deviation = apart.deviations.get(subject)
    return Outlier(
        host=subject[0],
        subject=subject[1],
        column=column,
        value=value,
        usual=round(apart.usual, 3) if isinstance(apart.usual, float) else apart.usual,
        deviation=None if deviation is None else round(deviation, 1),
        alike=apart.alike,
        compared=apart.compared,
    )


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
