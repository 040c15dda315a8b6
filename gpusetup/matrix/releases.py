"""Releases of the matrix: export one as a file, import it on another machine, and compare releases.

An imported release is in force as soon as the link `current` names it, until this gpusetup ships a newer one.
"""

import datetime as dt
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import NAMES, Matrix, canonical, content_of, package_files, shipped_date
from gpusetup.model import Reading
from gpusetup.model.answers import Change, MatrixRelease

_NAMED_BY = (
    "id", "name", "package", "version", "branch", "variant", "extra", "minor", "major", "cuda", "vgpu", "guest",
    "directory", "family", "component", "format", "kind", "source", "wheel", "pin", "arch", "driver", "dcgm",
    "min_branch", "platform", "names", "systems",
)  # fmt: skip
"""Fields that identify a record: the first few that it has name it, and equal names are compared in file order."""
_UNUSABLE = ("GS-201", "this file of the matrix cannot be used")
_SAID_OF_ALL = ("sources", "date", "schema")
_NAMES = 4
"""How many of these fields name a record."""


def texts_of(matrix: Matrix) -> dict[str, str]:
    """Return every file of a matrix as text; raise BadInputError for added records, which are in none of them."""
    found = {}
    for name in (*NAMES, *package_files()):
        if (more := matrix.addition(name)) is not None:
            raise BadInputError(
                "GS-220", f"{name}.more.json adds to the shipped data: it is not exported or compared with it",
                path=more, hint="unset GPUSETUP_MATRIX, or merge the records into one file",
            )  # fmt: skip
        path = matrix.path(name)
        with Reading(path, _UNUSABLE):
            found[name] = content_of(name, path).decode()
    return found


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    """Yield the differences between the files of two matrices, by component."""
    for name in sorted({*old, *new}):
        with Reading(f"{name}.json", _UNUSABLE):
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
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in words]


def _fields(was: Any, now: Any) -> dict[str, tuple[Any, Any]]:
    """Return the fields that differ, except the sources."""
    if not isinstance(was, dict) or not isinstance(now, dict):
        return {"": (was, now)}
    names = sorted({*was, *now} - {"sources"})
    return {name: (was.get(name), now.get(name)) for name in names if was.get(name) != now.get(name)}


_CURRENT = "current"
KEPT = 5
"""How many imported releases to keep, for the way back."""
_AHEAD = dt.timedelta(days=2)
"""How far the clock may be behind. A release dated in the future would block every later one."""


def exported(matrix: Matrix) -> bytes:
    """Return the matrix in force as the content of a release file."""
    return canonical(release_of(matrix))


def release_of(matrix: Matrix) -> MatrixRelease:
    """Return a matrix as a release."""
    files = texts_of(matrix)
    return MatrixRelease(date=matrix.date, sha256=digest(files), files=files)


def opened(content: bytes, where: str) -> MatrixRelease:
    """Parse a release file; raise BadInputError if it is not one or its digest does not match."""
    hint = "`gpusetup matrix export --out FILE` writes one"
    with Reading(where, ("GS-220", "this is not a release of the matrix"), hint=hint):
        release = msgspec.json.decode(content, type=MatrixRelease)
        dt.date.fromisoformat(release.date)
    if digest(release.files) != release.sha256:
        raise BadInputError("GS-220", "the release is damaged: its files do not match its digests", path=where,
                            hint="fetch it again")  # fmt: skip
    return release


def examined(release: MatrixRelease) -> None:
    """Read every file of a release; raise BadInputError if any cannot be used."""
    with tempfile.TemporaryDirectory() as folder:
        written(release, Path(folder))


def written(release: MatrixRelease, folder: Path) -> Matrix:
    """Write the release into a folder and read every file; raise BadInputError if one is unusable or missing.

    A missing file would be read from the shipped data, so answers would mix two matrices.
    """
    if missing := sorted({*NAMES, *package_files()} - release.files.keys()):
        raise BadInputError(
            "GS-220", f"the release lacks {', '.join(missing)}", path="$.files",
            hint="fetch a whole one, which `gpusetup matrix export` of this gpusetup's version or a later one wrote",
        )  # fmt: skip
    for name, text in release.files.items():
        if name not in NAMES and name not in package_files():
            continue  # for a newer gpusetup
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
    """Raise BadInputError for a release dated in the future, or older than the shipped one or the one in force."""
    if dt.date.fromisoformat(release.date) > today + _AHEAD:
        raise BadInputError(
            "GS-222", f"the release is dated {release.date}, in the future (today is {today})", path="$.date",
            hint="set this machine's clock, or fetch another release",
        )  # fmt: skip
    if release.date < shipped_date():
        raise BadInputError(
            "GS-222", f"the release is dated {release.date}, older than what this gpusetup ships ({shipped_date()})",
            path="$.date", hint="to read it, export GPUSETUP_MATRIX=FOLDER of its files",
        )  # fmt: skip
    if release.date < now and not older:
        raise BadInputError(
            "GS-222", f"the release is dated {release.date}, older than the matrix in force ({now})", path="$.date",
            hint="--older accepts it",
        )  # fmt: skip


def put_in_force(release: MatrixRelease, home: Path) -> Path:
    """Store a release and make it the one that lookups read; if interrupted, the previous one stays in force."""
    home.mkdir(parents=True, exist_ok=True)
    folder, new, link = home / release.name, home / ".new", home / f".{_CURRENT}"
    with (home / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(new, ignore_errors=True)  # a killed import left it
        if not folder.is_dir():
            try:
                new.mkdir()
                written(release, new)
                for path in new.rglob("*.json"):
                    with path.open("rb") as file:  # else a power cut leaves it empty
                        os.fsync(file.fileno())
                new.chmod(0o755)
                new.rename(folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name)
        link.replace(home / _CURRENT)
        for old in all_kept(home)[:-KEPT]:
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)
    return folder


def all_kept(home: Path) -> list[Path]:
    """Return the folders of the imported releases, oldest first."""
    return sorted(path for path in home.glob("????-??-??-*") if path.is_dir())


def digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 over the names and texts of a release's files."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{len(files[name])}\0{files[name]}".encode())
    return total.hexdigest()
