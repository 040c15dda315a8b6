"""Overlays of own data: merge additional records into a file, and check that every record which they name exists."""

import datetime as dt
from collections.abc import Iterator
from os.path import basename
from typing import Any, Protocol, TypeVar

import msgspec

from gpusetup.errors import BadInputError
from gpusetup.model.platforms import GpuFile, OsRelease
from gpusetup.model.record import MatrixFile, Record
from gpusetup.model.release import CudaFile, DriverFile, TorchFile

File = TypeVar("File", bound="MatrixFile")


def complete(addition: bytes, base: MatrixFile) -> bytes:
    """Return the addition as a whole document: missing tables are empty, other missing fields are the base's."""
    raw: dict[str, Any] = msgspec.json.decode(addition, type=dict[str, Any])
    whole: dict[str, Any] = {}
    for name in base.__struct_fields__:
        value = getattr(base, name)
        whole[name] = {} if isinstance(value, dict) else [] if isinstance(value, tuple) else value
    return msgspec.json.encode(whole | raw)


def extended(base: File, addition: MatrixFile) -> File:
    """Return the base with the addition's records appended; for equal keys of a mapping the addition wins."""
    changes: dict[str, Any] = {}
    for name in base.__struct_fields__:
        ours, theirs = getattr(base, name), getattr(addition, name)
        if isinstance(ours, dict):
            changes[name] = {**ours, **theirs}
        elif isinstance(ours, tuple):
            changes[name] = (*ours, *theirs)
    return msgspec.structs.replace(base, date=max(base.date, addition.date), **changes)


class Known(Protocol):
    """The files whose records others name: driver branches, architectures and CUDA minors, loaded on demand."""

    @property
    def driver(self) -> DriverFile:
        """Driver branches and architectures."""

    @property
    def cuda(self) -> CudaFile:
        """CUDA releases."""


Dangling = tuple[str, str]
"""The path of a field, and the missing thing that it names."""


def check_references(known: Known, file: MatrixFile, path: str) -> None:
    """Raise BadInputError for the first field that names something missing."""
    for field, what in (*_day(file), *_sources(file), *_inside(file), *_across(known, file)):
        raise BadInputError(
            "GS-206",
            f"the matrix file {basename(path)} names {what}, which does not exist",  # noqa: PTH119 - as in load.py
            path=f"{path}:$.{field}",
        )


def _day(file: MatrixFile) -> Iterator[Dangling]:
    try:
        dt.date.fromisoformat(file.date)
    except ValueError:
        yield "date", f"the day {file.date}"


def _records(file: MatrixFile) -> Iterator[tuple[str, Record]]:
    for field in file.__struct_fields__:
        value = getattr(file, field)
        if isinstance(value, Record):
            yield field, value
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, Record):
                    yield f"{field}[{index}]", item
                for row, python in enumerate(item.pythons if isinstance(item, OsRelease) else ()):
                    yield f"{field}[{index}].pythons[{row}]", python


def _sources(file: MatrixFile) -> Iterator[Dangling]:
    for field, record in _records(file):
        for index, key in enumerate(record.sources):
            if key not in file.sources:
                yield f"{field}.sources[{index}]", f"the source {key}"


def _inside(file: MatrixFile) -> Iterator[Dangling]:
    if isinstance(file, DriverFile):
        branches = {branch.branch for branch in file.branches}
        for index, item in enumerate(file.versions):
            if item.platform == "linux" and item.branch not in branches:
                yield f"versions[{index}].branch", f"the driver branch {item.branch}"
    if isinstance(file, TorchFile):
        releases = {release.version for release in file.releases}
        for index, build in enumerate(file.builds):
            if build.code is not None and build.version not in releases:
                yield f"builds[{index}].version", f"the torch release {build.version}"


def _across(known: Known, file: MatrixFile) -> Iterator[Dangling]:
    if isinstance(file, CudaFile):
        branches = {branch.branch for branch in known.driver.branches}
        for index, release in enumerate(file.releases):
            if release.driver_branch not in branches:
                yield f"releases[{index}].driver_branch", f"the driver branch {release.driver_branch}"
    if isinstance(file, GpuFile):
        pairs = {(row.name, cc) for row in known.driver.architectures for cc in row.capabilities}
        for index, gpu in enumerate(file.gpus):
            if (gpu.arch, gpu.cc) not in pairs:
                yield f"gpus[{index}].arch", f"the architecture {gpu.arch} with capability {gpu.cc}"
    if isinstance(file, TorchFile):
        minors = {release.minor for release in known.cuda.releases}
        for index, build in enumerate(file.builds):
            if build.code is not None and build.cuda not in minors:
                yield f"builds[{index}].cuda", f"CUDA {build.cuda}"
