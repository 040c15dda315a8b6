"""Releases of the matrix: one file that travels, and the folder of those that were taken in on this machine.

A release that was taken in is in force from the moment that a link names it, until this gpusetup ships a newer one.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import shutil
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.errors import BadInputError, wrong_field
from gpusetup.matrix.load import NAMES, Matrix, canonical, package_files, shipped_date
from gpusetup.model.answers import Change, MatrixRelease

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


_CURRENT = "current"
KEPT = 60
"""How many releases stay here, for `matrix diff` and `matrix history`: two months of one a day, about 100 MB."""
_AHEAD = dt.timedelta(days=2)
"""How far a clock may be behind: a release from the future would keep every later one out."""


def exported(matrix: Matrix) -> bytes:
    """Return the matrix in force as one file."""
    for name in (*NAMES, *package_files()):
        if matrix.addition(name) is not None:
            raise BadInputError(
                "GS-220", f"{name}.more.json adds to the shipped data and cannot be exported with it",
                path=str(matrix.addition(name)),
                hint="export without GPUSETUP_MATRIX, or merge the records into one file",
            )  # fmt: skip
    return canonical(release_of(matrix))


def release_of(matrix: Matrix) -> MatrixRelease:
    """Return a matrix as a release; what was added to it is not in it."""
    files = texts_of(matrix)
    return MatrixRelease(date=matrix.date, sha256=digest(files), files=files)


def opened(content: bytes, where: str) -> MatrixRelease:
    """Return the release in a file; refuse what is none, and one whose files are not those that it was made of."""
    try:
        release = msgspec.json.decode(content, type=MatrixRelease)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what, field = wrong_field(error)
        raise BadInputError(
            "GS-220", f"this is not a release of the matrix: {what}", path=f"{where}:{field}",
            hint="`gpusetup matrix export --out FILE` writes one",
        ) from error  # fmt: skip
    if digest(release.files) != release.sha256:
        raise BadInputError("GS-220", "the release is damaged: its files are not those it was made of", path=where,
                            hint="fetch it again")  # fmt: skip
    return release


def examined(release: MatrixRelease) -> None:
    """Read all of a release: what cannot be used is refused here."""
    with tempfile.TemporaryDirectory() as folder:
        written(release, Path(folder))


def written(release: MatrixRelease, folder: Path) -> Matrix:
    """Write the release into a folder and read all of it: what cannot be used, or lacks a file, is refused here.

    In place of a missing file the shipped one would be read: answers would come from two matrices at once.
    """
    if missing := sorted({*NAMES, *package_files()} - release.files.keys()):
        raise BadInputError(
            "GS-220", f"the release lacks {', '.join(missing)}", path="$.files",
            hint="fetch a whole one, which `gpusetup matrix export` of this gpusetup's version or a later one wrote",
        )  # fmt: skip
    for name, text in release.files.items():
        if name not in NAMES and name not in package_files():
            continue  # a newer gpusetup reads it
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found = Matrix(folder)
    list(found.files())
    for name in package_files():
        found.package(name.rpartition("/")[2])
    if found.date != release.date:
        raise BadInputError(
            "GS-220", f"the release is dated {release.date}, its driver data {found.date}", path="$.date"
        )
    return found


def check_order(release: MatrixRelease, now: str, today: dt.date, *, older: bool) -> None:
    """Refuse a release that would take versions away again, and one from days to come."""
    if dt.date.fromisoformat(release.date) > today + _AHEAD:
        raise BadInputError(
            "GS-222", f"the release is of {release.date}, which is still to come (today is {today})", path="$.date",
            hint="set this machine's clock, or fetch another release",
        )  # fmt: skip
    if release.date < shipped_date():
        raise BadInputError(
            "GS-222", f"the release is of {release.date}, older than what this gpusetup ships ({shipped_date()})",
            path="$.date", hint="to read it, export GPUSETUP_MATRIX=FOLDER of its files",
        )  # fmt: skip
    if release.date < now and not older:
        raise BadInputError(
            "GS-222", f"the release is of {release.date}, older than the matrix in force ({now})", path="$.date",
            hint="--older takes it all the same",
        )  # fmt: skip


def put_in_force(release: MatrixRelease, home: Path) -> Path:
    """Keep a release and have lookups read it from now on; a cut leaves the one that was in force."""
    home.mkdir(parents=True, exist_ok=True)
    folder = home / release.name
    if not folder.is_dir():
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=home))
        try:
            written(release, new)
            new.chmod(0o755)
            new.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    link = home / f".{_CURRENT}.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(home / _CURRENT)
    for old in all_kept(home)[:-KEPT]:
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def all_kept(home: Path) -> list[Path]:
    """Return the folders of the releases that were taken in, oldest first."""
    return sorted(path for path in home.glob("????-??-??-*") if path.is_dir())


def digest(files: Mapping[str, str]) -> str:
    """Return what says that these are the files of a release."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{len(files[name])}\0{files[name]}".encode())
    return total.hexdigest()
