"""Releases of the matrix: one file that travels, and the folder of those that were taken in on this machine.

A release that was taken in is in force from the moment that a link names it, until this gpusetup ships a newer one.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpusetup.errors import BadInputError, wrong_field
from gpusetup.matrix.differences import texts_of
from gpusetup.matrix.load import NAMES, Matrix, canonical, package_files, shipped_date
from gpusetup.model.answers import MatrixRelease

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "KEPT",
    "MatrixRelease",
    "all_kept",
    "check_order",
    "digest",
    "examined",
    "exported",
    "opened",
    "put_in_force",
    "release_of",
    "written",
]

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
