"""What is said of a stack's Python: where it comes from, what is not known of it, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.model.stack import Reason
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import number
from gpusetup.resolve.naming import cite, rule_source
from gpusetup.resolve.preferences import best
from gpusetup.resolve.runtimes import OTHERS, own_python, pythons
from gpusetup.resolve.space import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpusetup.resolve.domains import Value
    from gpusetup.resolve.space import Space


_LONG = 12
"""Months between two releases from which on a difference is worth a warning."""


def python_reasons(space: Space, solution: Mapping[str, Value]) -> Iterator[Reason]:
    """Say where a Python comes from that is not the system's own."""
    if "python" not in solution or space.os is None:
        return
    version, system = solution["python"].version, space.os
    row = system.packaged(version)
    if row is None or version == own_python(space):
        return
    text = f"{version} is {system.name}'s own package {row.packages[0]}; its base Python is {own_python(space)}"
    source = cite(space.matrix, "python", row) or rule_source(space.matrix, "distribution-python")
    yield Reason(component="python", rule="distribution-python", text=text, source=source)


def python_warnings(space: Space, solution: Mapping[str, Value]) -> Iterator[str]:
    """Say what is not known, what the system cannot bring, and where its Python costs years."""
    if "python" not in solution or space.os is None:
        return
    version, system = solution["python"].version, space.os
    row, known = system.packaged(version), pythons(space)
    if not known and "python" not in space.named:
        yield f"{system.name}: nobody published which Python it has; this stack takes the range above"
    elif known and version not in known and row is None:
        yield f"{system.name} has no package of Python {version}; uv installs one: {_uv(version)}"
    elif row is not None and row.prerelease:
        yield f"{system.name}'s package of Python {version} is {row.note}"
    if known and "python" not in space.named:
        yield from _held_back(space, solution)


def _uv(version: str) -> str:
    return f"uv venv --managed-python --python {version} ~/gpu"


def _held_back(space: Space, solution: Mapping[str, Value]) -> Iterator[str]:
    """Compare with what another Python would allow, where the newest release is years younger than the chosen one."""
    late = {name: solution[name] for name in FRAMEWORKS if name in space.named and _is_late(space, name, solution)}
    if not late:
        return
    better = best(build(space.matrix, msgspec.structs.replace(space.request, pythons=OTHERS)))
    for name, value in late.items():
        if better is not None and _months(better[name]) - _months(value) >= _LONG:
            wish = better["python"].version
            assert space.os is not None  # noqa: S101 - only a distribution limits the Pythons
            yield (
                f"the newest Python of {space.os.name} here is {solution['python'].version}, which limits {name} to "
                f"{value.version} ({_date(value)}); Python {wish} allows {name} {better[name].version} "
                f"({_date(better[name])}). Install it without root: {_uv(wish)}; then ask for python=={wish}"
            )


def _is_late(space: Space, name: str, solution: Mapping[str, Value]) -> bool:
    newest = max(space.values[name], key=lambda value: (_months(value), number(value)))
    return _months(newest) - _months(solution[name]) >= _LONG


def _date(value: Any) -> str:
    """Return the month in which a release came out; empty when nobody says."""
    text: str = value.release.date
    return text[: len("2026-01")]


def _months(value: Any) -> int:
    """Return that month as a number; what has no date is as old as can be."""
    year, _, month = _date(value).partition("-")
    return 12 * int(year) + int(month) if year.isdigit() and month.isdigit() else 0
