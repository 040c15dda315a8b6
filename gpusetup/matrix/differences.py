"""What two releases of the matrix say differently, record by record."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.matrix.load import NAMES, package_files
from gpusetup.model.answers import Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpusetup.matrix.load import Matrix

__all__ = ["Change", "changes", "texts_of"]

_NAMED_BY = (
    "id", "name", "package", "version", "branch", "variant", "extra", "minor", "major", "cuda", "vgpu", "guest",
    "directory", "family", "component", "format", "kind", "source", "wheel", "pin", "arch", "driver", "dcgm",
    "min_branch", "platform", "names", "systems",
)  # fmt: skip
"""Fields that say which record it is, the first ones that it has; records that share them are told by their order."""
_SAID_OF_ALL = ("sources", "date", "schema")
_NAMES = 4
"""This many of the fields name a record."""


def texts_of(matrix: Matrix) -> dict[str, str]:
    """Return every file of a matrix as text."""
    found = {}
    for name in (*NAMES, *package_files()):
        with open(matrix.path(name), encoding="utf-8") as file:  # noqa: PTH123 - as in load.py
            found[name] = file.read()
    return found


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    """Yield what differs between the files of two matrices, by component."""
    for name in sorted({*old, *new}):
        before, after = (msgspec.json.decode(files.get(name, "{}"), type=dict[str, Any]) for files in (old, new))
        for part in sorted({*before, *after} - {*_SAID_OF_ALL}):
            yield from _of_part(name, part, before.get(part), after.get(part))


def _of_part(component: str, part: str, was_part: Any, now_part: Any) -> Iterator[Change]:
    if not isinstance(was_part or now_part, list):
        if was_part != now_part:
            yield Change(component=component, record=part, what="changed", fields={part: (was_part, now_part)})
        return
    olds, news = _by_name(was_part or []), _by_name(now_part or [])
    for record in sorted({*olds, *news}, key=_natural):
        before, after = olds.get(record, []), news.get(record, [])
        gone, come = [item for item in before if item not in after], [item for item in after if item not in before]
        for was, now in zip_longest(gone, come):
            name = f"{part}: {record}"
            if was is None:
                yield Change(component=component, record=name, what="added")
            elif now is None:
                yield Change(component=component, record=name, what="gone")
            elif fields := _fields(was, now):
                yield Change(component=component, record=name, what="changed", fields=fields)


def _by_name(records: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for record in records:
        found.setdefault(_name(record), []).append(record)
    return found


def _name(record: Any) -> str:
    if not isinstance(record, dict):
        return str(record)
    told = [record[field] for field in _NAMED_BY if record.get(field)][:_NAMES]
    return " ".join(", ".join(map(str, value)) if isinstance(value, list) else str(value) for value in told)


def _natural(name: str) -> list[tuple[int, str]]:
    words = "".join(char if char.isalnum() else " " for char in name).split()
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]


def _fields(was: Any, now: Any) -> dict[str, tuple[Any, Any]]:
    """Return what differs; where it was read is no difference in what is said."""
    if not isinstance(was, dict) or not isinstance(now, dict):
        return {"": (was, now)}
    names = sorted({*was, *now} - {"sources"})
    return {name: (was.get(name), now.get(name)) for name in names if was.get(name) != now.get(name)}
