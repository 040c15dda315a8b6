"""Find what sets hosts apart: settings that differ from the majority, figures far from the median."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from gpusetup.facts.properties import GPU, HOST, gpus_named, summary
from gpusetup.model.fleet import Cell, Column, CompareGroup, Comparison, Outlier
from gpusetup.verify.registry import checks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusetup.model.facts import Facts, HostFacts
    from gpusetup.model.fleet import Standing
    from gpusetup.model.verdict import Result

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
        if isinstance(item.measured, (int, float)) and not isinstance(item.measured, bool)
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
