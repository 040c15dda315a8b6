"""The answers of lookups with `--format json`; kept light, because every lookup imports this module."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from gpusetup.model import Document, Success, whole
from gpusetup.model.stack import MatrixStamp, Reason, TakenFor


class Clash(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the rules in a conflict."""

    rule: str
    text: str
    source: str


class NoStack(Document, frozen=True, kw_only=True, tag="gpusetup/stack/1"):
    """No stack fits: a minimal set of conflicting rules, and suggestions."""

    ok: Literal[False] = False
    matrix: MatrixStamp
    conflict: tuple[Clash, ...]
    suggestions: tuple[str, ...]


class MatrixRows(Success, frozen=True, kw_only=True, tag="gpusetup/matrix/1"):
    """Rows of the matrix; a row's keys depend on the lookup, but every row has confidence and sources."""

    matrix: MatrixStamp
    rows: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    fits: dict[str, tuple[str, ...]] | UnsetType = UNSET
    """What else runs on the driver in the question."""
    conclusion: str | UnsetType = UNSET
    gpus: tuple[TakenFor, ...] | UnsetType = UNSET
    """How the GPUs' names were understood."""
    overview: dict[str, list[dict[str, str]]] | UnsetType = UNSET
    """The tables of `matrix` without a question: a title → rows, each a column's heading → its text."""


class NoRows(Document, frozen=True, kw_only=True, tag="gpusetup/matrix/1"):
    """No row fits the question."""

    ok: Literal[False] = False
    rows: tuple[()] = ()
    conflict: tuple[Clash, ...]
    suggestions: tuple[str, ...] = ()


class MatrixFiles(Success, frozen=True, kw_only=True, tag="gpusetup/matrix-files/1"):
    """Where the matrix is kept."""

    files: dict[str, str]


class StackClasses(Document, frozen=True, kw_only=True, tag="gpusetup/stacks/1"):
    """One stack, conflict or error per class of equal hosts, with the names of its hosts."""

    ok: bool
    classes: dict[str, dict[str, Any]]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version named in the question, other than the chosen one."""

    version: str
    fits: bool
    conflict: tuple[Clash, ...] | UnsetType = UNSET
    command: str | UnsetType = UNSET
    """The command that chooses it."""


class Why(Success, frozen=True, kw_only=True, tag="gpusetup/why/1"):
    """Why a component's version was chosen."""

    matrix: MatrixStamp
    component: str
    chosen: Any
    reasons: tuple[Reason, ...]
    asked: Asked | UnsetType = UNSET


class WhyNot(Document, frozen=True, kw_only=True, tag="gpusetup/why-not/1"):
    """What forbids a version; `ok` is true if nothing does."""

    ok: bool
    matrix: MatrixStamp
    version: str
    forbidden: bool
    conflict: tuple[Clash, ...] = ()
    suggestions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class MatrixRelease(Document, frozen=True, kw_only=True, tag="gpusetup/matrix-release/1"):
    """A whole matrix in one file; `sha256` is a digest of its files."""

    date: Annotated[str, whole(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")]
    sha256: str
    files: dict[str, str]

    @property
    def name(self) -> str:
        """The name of its folder; names sort by date."""
        return f"{self.date}-{self.sha256[:12]}"


class Change(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record that was added, changed or removed between two matrices; `fields` has the old and new values."""

    component: str
    record: str
    what: Literal["added", "changed", "gone"]
    fields: dict[str, tuple[Any, Any]] = {}
