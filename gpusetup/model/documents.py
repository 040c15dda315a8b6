"""Every document that another program may rely on: the table of all, and the small ones about what commands write."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

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


class About(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that decides what this gpusetup answers and does."""

    schema: Literal["gpusetup/version/1"] = "gpusetup/version/1"
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


class ErrorDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any command that failed, and nothing more precise can be said."""

    schema: Literal["gpusetup/error/1"] = "gpusetup/error/1"
    ok: Literal[False] = False
    error: Told


class UserDataMade(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """User-data for a new instance."""

    schema: Literal["gpusetup/user-data/1"] = "gpusetup/user-data/1"
    ok: Literal[True] = True
    shape: str
    bytes: int
    user_data: str


class ContentPlace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the collection is."""

    schema: Literal["gpusetup/content/1"] = "gpusetup/content/1"
    ok: Literal[True] = True
    path: str


class MonitoringFiles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was written for Prometheus and Grafana."""

    schema: Literal["gpusetup/monitoring/1"] = "gpusetup/monitoring/1"
    ok: Literal[True] = True
    folder: str
    files: tuple[str, ...]


class HandoverFiles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was written for another engine."""

    schema: Literal["gpusetup/handover/1"] = "gpusetup/handover/1"
    ok: Literal[True] = True
    folder: str
    files: tuple[str, ...]
    twice: tuple[str, ...]
    """What host and engine would both do, and how it is kept from happening."""
    warnings: tuple[str, ...]


class BundleMade(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle that was made or checked."""

    schema: Literal["gpusetup/bundle-made/1"] = "gpusetup/bundle-made/1"
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


class BundleWanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a bundle would fetch."""

    schema: Literal["gpusetup/bundle-wanted/1"] = "gpusetup/bundle-wanted/1"
    ok: Literal[True] = True
    systems: tuple[SystemWanted, ...]


class BundleDiff(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an older bundle lacks of a newer one; its manifest is carried too."""

    schema: Literal["gpusetup/bundle-diff/1"] = "gpusetup/bundle-diff/1"
    ok: Literal[True] = True
    path: str
    older: str
    bytes: int
    files: tuple[Carried, ...]


class BundlePacked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle as one file, or as several."""

    schema: Literal["gpusetup/bundle-packed/1"] = "gpusetup/bundle-packed/1"
    ok: Literal[True] = True
    parts: tuple[str, ...]
    bytes: int


class BundleUnpacked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle's folder that was made of a packed one."""

    schema: Literal["gpusetup/bundle-unpacked/1"] = "gpusetup/bundle-unpacked/1"
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


class Mirror(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mirror, and what hosts are told to use it; empty where it was only looked at."""

    schema: Literal["gpusetup/mirror/1"] = "gpusetup/mirror/1"
    ok: Literal[True] = True
    repositories: tuple[Mirrored, ...]
    source: str
    fingerprints: tuple[str, ...]


class Timer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A systemd timer of gpusetup's; `when` and `runs` are empty where there is none."""

    schema: Literal["gpusetup/timer/1"] = "gpusetup/timer/1"
    ok: Literal[True] = True
    timer: str
    state: Literal["installed", "there", "removed", "none"]
    when: str = ""
    runs: str = ""


class Explained(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page about a check or a cause, in Markdown."""

    schema: Literal["gpusetup/explained/1"] = "gpusetup/explained/1"
    ok: Literal[True] = True
    kind: Literal["check", "cause"]
    name: str
    page: str


class Documents(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The documents that have a schema, and what each is from."""

    schema: Literal["gpusetup/documents/1"] = "gpusetup/documents/1"
    ok: Literal[True] = True
    documents: dict[str, str]


class MatrixExported(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A matrix that was written into one file."""

    schema: Literal["gpusetup/matrix-exported/1"] = "gpusetup/matrix-exported/1"
    ok: Literal[True] = True
    path: str
    date: str
    sha256: str
    signature: str


class MatrixImported(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A release of the matrix that was taken in; `place` is empty where it was only examined."""

    schema: Literal["gpusetup/matrix-imported/1"] = "gpusetup/matrix-imported/1"
    ok: Literal[True] = True
    date: str
    before: str
    vouched: str
    place: str
    changes: tuple[str, ...]


class MatrixDiff(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What two matrices say differently."""

    schema: Literal["gpusetup/matrix-diff/1"] = "gpusetup/matrix-diff/1"
    ok: Literal[True] = True
    before: str
    after: str
    changes: tuple[Change, ...]


class MatrixHistory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each release on this machine brought for a component."""

    schema: Literal["gpusetup/matrix-history/1"] = "gpusetup/matrix-history/1"
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


class DriverEnds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Until when the drivers of hosts are supported."""

    schema: Literal["gpusetup/driver-ends/1"] = "gpusetup/driver-ends/1"
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
