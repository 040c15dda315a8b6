"""The age of the matrix: each component's newest version, its date, and when its sources were read."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from gpusetup.matrix.load import package_files
from gpusetup.resolve.domains import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.record import MatrixFile

_RELEASED = ("cuda", "cudnn", "nccl", "torch", "tensorflow", "jax", "cupy")


def ages(matrix: Matrix, today: dt.date, *, newer: bool = False) -> list[dict[str, Any]]:
    """Return a row for each component: it lacks everything published since its sources were read.

    With `newer`, ask the publishers: a row also has the newest release, and for how many days the matrix lacks one.
    """
    rows = [_row(name, file, releases, today) for name, file, releases in _components(matrix)]
    return _compared(rows, today) if newer else rows


def _compared(rows: list[dict[str, Any]], today: dt.date) -> list[dict[str, Any]]:
    from gpusetup.cli.newer import published_of

    lists = published_of(row["component"] for row in rows)
    for row in rows:
        listed = lists[row["component"]]
        if isinstance(listed, str):
            row |= {"publisher": "not reached", "behind": None}
            continue
        lacking = [release for release in listed if release.version > parsed(row["newest"])]
        first = min((release.date for release in lacking if release.date), default="")
        behind = (today - dt.date.fromisoformat(first)).days if first else 0 if not lacking else None
        row |= {"publisher": str(lacking[-1].version) if lacking else row["newest"], "behind": behind}
    return rows


def _components(matrix: Matrix) -> Iterator[tuple[str, MatrixFile, Any]]:
    yield "driver", matrix.driver, [one for one in matrix.driver.versions if one.platform == "linux"]
    for name in _RELEASED:
        file = getattr(matrix, name)
        yield name, file, file.releases
    for name in (name.rpartition("/")[2] for name in package_files()):
        package = matrix.package(name)
        yield name, package, package.releases


def _row(name: str, file: MatrixFile, releases: Any, today: dt.date) -> dict[str, Any]:
    newest = max(releases, key=lambda release: parsed(release.version))
    return {
        "component": name,
        "newest": newest.version,
        "published": getattr(newest, "date", "") or "unknown",
        "read": file.date,
        "days": (today - dt.date.fromisoformat(file.date)).days,
        "confidence": newest.confidence,
        "sources": [file.sources[key].url for key in newest.sources if key in file.sources and file.sources[key].url],
    }
