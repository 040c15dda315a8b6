"""Every document that another program may rely on: the table of all, and the small ones about what commands write."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gpusetup.model import Document
from gpusetup.model.answers import Change

InstallKind = Literal["checkout", "deb", "rpm", "package", "single file", "uv", "pipx", "virtual environment", "system"]


class Overlay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a setting of the environment replaces."""

    setting: str
    place: str
    files: tuple[str, ...] = ()
    """The files of the matrix that stand there."""


class MatrixInForce(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The matrix that answers; `place` is empty for the one that came along."""

    date: str
    digest: str
    place: str


class About(Document, frozen=True, kw_only=True, tag="gpusetup/version/1"):
    """All that decides what this gpusetup answers and does."""

    ok: Literal[True] = True
    version: str
    install: InstallKind
    place: str
    """The folder of the program's own files."""
    matrix: MatrixInForce
    overlays: tuple[Overlay, ...]
    collection: str
    """Its folder, or why it cannot be found."""
    python: str
    interpreter: str
    platform: str
    libraries: dict[str, str | None]
    """Each library's version; null where it is not installed."""


class Told(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error in words."""

    reference: str
    message: str
    path: str
    hint: str
    context: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    link: str | UnsetType = UNSET


class ErrorDocument(Document, frozen=True, kw_only=True, tag="gpusetup/error/1"):
    """Any command that failed, and nothing more precise can be said."""

    ok: Literal[False] = False
    error: Told


class UserDataMade(Document, frozen=True, kw_only=True, tag="gpusetup/user-data/1"):
    """User-data for a new instance."""

    ok: Literal[True] = True
    shape: str
    bytes: int
    user_data: str


class ContentPlace(Document, frozen=True, kw_only=True, tag="gpusetup/content/1"):
    """Where the collection is."""

    ok: Literal[True] = True
    path: str


class MonitoringFiles(Document, frozen=True, kw_only=True, tag="gpusetup/monitoring/1"):
    """What was written for Prometheus and Grafana."""

    ok: Literal[True] = True
    folder: str
    files: tuple[str, ...]


class HandoverFiles(Document, frozen=True, kw_only=True, tag="gpusetup/handover/1"):
    """What was written for another engine."""

    ok: Literal[True] = True
    folder: str
    files: tuple[str, ...]
    twice: tuple[str, ...]
    """What host and engine would both do, and how it is kept from happening."""
    warnings: tuple[str, ...]


class BundleMade(Document, frozen=True, kw_only=True, tag="gpusetup/bundle-made/1"):
    """A bundle that was made or checked."""

    ok: Literal[True] = True
    path: str
    manifest_sha256: str
    gpusetup: str
    files: int
    bytes: int
    sets: tuple[str, ...]
    systems: tuple[str, ...] = ()


class Carried(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a bundle."""

    name: str
    size: int


class SystemWanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a release needs in a bundle."""

    system: str
    stacks: int
    packages: int
    wheels: int
    bytes: int
    files: tuple[Carried, ...]


class BundleWanted(Document, frozen=True, kw_only=True, tag="gpusetup/bundle-wanted/1"):
    """What a bundle would fetch."""

    ok: Literal[True] = True
    systems: tuple[SystemWanted, ...]


class BundleDiff(Document, frozen=True, kw_only=True, tag="gpusetup/bundle-diff/1"):
    """What an older bundle lacks of a newer one; its manifest is carried too."""

    ok: Literal[True] = True
    path: str
    older: str
    bytes: int
    files: tuple[Carried, ...]


class BundlePacked(Document, frozen=True, kw_only=True, tag="gpusetup/bundle-packed/1"):
    """A bundle as one file, or as several."""

    ok: Literal[True] = True
    parts: tuple[str, ...]
    bytes: int


class BundleUnpacked(Document, frozen=True, kw_only=True, tag="gpusetup/bundle-unpacked/1"):
    """A bundle's folder that was made of a packed one."""

    ok: Literal[True] = True
    path: str
    new: int
    files: int
    manifest_sha256: str


class Mirrored(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a mirror has of a repository; `new` and `gone` are null where nothing was published."""

    place: str
    packages: int
    bytes: int
    new: int | None
    gone: int | None


class Mirror(Document, frozen=True, kw_only=True, tag="gpusetup/mirror/1"):
    """A mirror, and what hosts are told to use it; empty where it was only looked at."""

    ok: Literal[True] = True
    repositories: tuple[Mirrored, ...]
    source: str
    fingerprints: tuple[str, ...]


class Timer(Document, frozen=True, kw_only=True, tag="gpusetup/timer/1"):
    """A systemd timer of gpusetup's; `when` and `runs` are empty where there is none."""

    ok: Literal[True] = True
    timer: str
    state: Literal["installed", "there", "removed", "none"]
    when: str = ""
    runs: str = ""


class Explained(Document, frozen=True, kw_only=True, tag="gpusetup/explained/1"):
    """The page about a check or a cause, in Markdown."""

    ok: Literal[True] = True
    kind: Literal["check", "cause"]
    name: str
    page: str


class Documents(Document, frozen=True, kw_only=True, tag="gpusetup/documents/1"):
    """The documents that have a schema, and what each is from."""

    ok: Literal[True] = True
    documents: dict[str, str]


class MatrixExported(Document, frozen=True, kw_only=True, tag="gpusetup/matrix-exported/1"):
    """A matrix that was written into one file."""

    ok: Literal[True] = True
    path: str
    date: str
    sha256: str
    signature: str


class MatrixImported(Document, frozen=True, kw_only=True, tag="gpusetup/matrix-imported/1"):
    """A release of the matrix that was taken in; `place` is empty where it was only examined."""

    ok: Literal[True] = True
    date: str
    before: str
    vouched: str
    place: str
    changes: tuple[str, ...]


class MatrixDiff(Document, frozen=True, kw_only=True, tag="gpusetup/matrix-diff/1"):
    """What two matrices say differently."""

    ok: Literal[True] = True
    before: str
    after: str
    changes: tuple[Change, ...]


class MatrixHistory(Document, frozen=True, kw_only=True, tag="gpusetup/matrix-history/1"):
    """What each release on this machine brought for a component."""

    ok: Literal[True] = True
    component: str
    steps: tuple[MatrixDiff, ...]


State = Literal["supported", "ends soon", "ended", "unknown"]


class DriverEnd(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver that hosts run, and the last day or month of its branch; `until` is empty where nobody published it."""

    driver: str
    branch: str
    until: str
    state: State
    hosts: tuple[str, ...]
    cves: tuple[str, ...] = ()
    """Known vulnerabilities, the gravest first."""
    fixed: str = ""
    """The release of the branch that has none of them."""


class DriverEnds(Document, frozen=True, kw_only=True, tag="gpusetup/driver-ends/1"):
    """Until when the drivers of hosts are supported."""

    ok: Literal[True] = True
    date: str
    drivers: tuple[DriverEnd, ...]
    unread: dict[str, str]
    """Hosts whose facts could not be read, and why."""


def documents() -> dict[str, str]:
    """Return where each document comes from, by its name."""
    return {name: row["from"] for name, row in _table().items()}


def forms_of(name: str) -> tuple[type[Struct], ...]:
    """Return the forms of a document: the answer, then what is printed when the answer is no."""
    found = (form.partition(".") for form in _table()[name]["forms"])
    return tuple(getattr(import_module(f"gpusetup.model.{module}"), struct) for module, _, struct in found)


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(Path(__file__).parent.joinpath("data/documents.json").read_bytes())
    return found
