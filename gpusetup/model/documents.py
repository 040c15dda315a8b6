"""The table of all documents that other programs may rely on, and the small documents about commands' output."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gpusetup.model import Document, Success

InstallKind = Literal["checkout", "deb", "rpm", "package", "single file", "uv", "pipx", "virtual environment", "system"]


class Overlay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data replaced through an environment variable."""

    setting: str
    place: str
    files: tuple[str, ...] = ()
    """The matrix files in that place."""


class MatrixInForce(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The matrix in force; `place` is empty for the shipped one."""

    date: str
    digest: str
    place: str


class About(Success, frozen=True, kw_only=True, tag="gpusetup/version/1"):
    """Everything that determines this gpusetup's answers and actions."""

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
    """Library → version; null if it is not installed."""


class Told(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error message and its parts."""

    reference: str
    message: str
    path: str
    hint: str
    context: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    link: str | UnsetType = UNSET


class ErrorDocument(Document, frozen=True, kw_only=True, tag="gpusetup/error/1"):
    """The error of a command that has no more specific document for it."""

    ok: Literal[False] = False
    error: Told


class UserDataMade(Success, frozen=True, kw_only=True, tag="gpusetup/user-data/1"):
    """User-data for a new instance."""

    shape: str
    bytes: int
    user_data: str


class ContentPlace(Success, frozen=True, kw_only=True, tag="gpusetup/content/1"):
    """Where the collection is."""

    path: str


class MonitoringFiles(Success, frozen=True, kw_only=True, tag="gpusetup/monitoring/1"):
    """The files written for Prometheus and Grafana."""

    folder: str
    files: tuple[str, ...]


class Timer(Success, frozen=True, kw_only=True, tag="gpusetup/timer/1"):
    """One of gpusetup's systemd timers; `when` and `runs` are empty if there is none."""

    timer: str
    state: Literal["installed", "removed", "none"]
    when: str = ""
    runs: str = ""


class Explained(Success, frozen=True, kw_only=True, tag="gpusetup/explained/1"):
    """The page about a check or a cause, in Markdown."""

    kind: Literal["check", "cause"]
    name: str
    page: str


class Documents(Success, frozen=True, kw_only=True, tag="gpusetup/documents/1"):
    """The documents that have a schema, and where each comes from."""

    documents: dict[str, str]


class MatrixExported(Success, frozen=True, kw_only=True, tag="gpusetup/matrix-exported/1"):
    """A matrix that was exported to a file."""

    path: str
    date: str
    sha256: str
    signature: str


class MatrixImported(Success, frozen=True, kw_only=True, tag="gpusetup/matrix-imported/1"):
    """An imported release of the matrix; `place` is empty if it was only examined."""

    date: str
    before: str
    vouched: str
    place: str
    changes: tuple[str, ...]


State = Literal["supported", "ends soon", "ended", "unknown"]


class DriverEnd(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver on hosts, and the last day or month of its branch's support; `until` is empty if unpublished."""

    driver: str
    branch: str
    until: str
    state: State
    hosts: tuple[str, ...]
    cves: tuple[str, ...] = ()
    """Known vulnerabilities, worst first."""
    fixed: str = ""
    """The release of the branch that fixes all of them."""


class DriverEnds(Success, frozen=True, kw_only=True, tag="gpusetup/driver-ends/1"):
    """When support ends for the drivers of hosts."""

    date: str
    drivers: tuple[DriverEnd, ...]
    unread: dict[str, str]
    """Hosts whose facts could not be read, and why."""


def documents() -> dict[str, str]:
    """Return document name → where it comes from."""
    return {name: row["from"] for name, row in _table().items()}


def forms_of(name: str) -> tuple[type[Struct], ...]:
    """Return a document's types: that of the answer, then those printed when the answer is no."""
    found = (form.rpartition(".") for form in _table()[name]["forms"])
    return tuple(getattr(import_module(module), struct) for module, _, struct in found)


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(Path(__file__).parent.joinpath("data/documents.json").read_bytes())
    return found
