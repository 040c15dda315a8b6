"""What the lookups answer with `--format json`: light, for every lookup loads it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gpusetup.model import Document
from gpusetup.model.stack import MatrixStamp, Reason, TakenFor


class Clash(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the rules that cannot be kept together."""

    rule: str
    text: str
    source: str


class NoStack(Document, frozen=True, kw_only=True, tag="gpusetup/stack/1"):
    """No stack fits: the smallest set of rules that exclude each other, and ways out."""

    ok: Literal[False] = False
    matrix: MatrixStamp
    conflict: tuple[Clash, ...]
    suggestions: tuple[str, ...]


class MatrixRows(Document, frozen=True, kw_only=True, tag="gpusetup/matrix/1"):
    """Rows of the matrix; the keys of a row depend on what was looked up, and each has confidence and sources."""

    ok: Literal[True] = True
    matrix: MatrixStamp
    rows: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    fits: dict[str, tuple[str, ...]] | UnsetType = UNSET
    """What else runs on the driver that was asked about."""
    conclusion: str | UnsetType = UNSET
    gpus: tuple[TakenFor, ...] | UnsetType = UNSET
    """What the GPUs' names were taken for."""


class NoRows(Document, frozen=True, kw_only=True, tag="gpusetup/matrix/1"):
    """No row fits what was asked."""

    ok: Literal[False] = False
    rows: tuple[()] = ()
    conflict: tuple[Clash, ...]
    suggestions: tuple[str, ...] = ()


class MatrixFiles(Document, frozen=True, kw_only=True, tag="gpusetup/matrix-files/1"):
    """Where the matrix is kept."""

    ok: Literal[True] = True
    files: dict[str, str]


class StackClasses(Document, frozen=True, kw_only=True, tag="gpusetup/stacks/1"):
    """One stack, conflict or error for each class of hosts that are alike; each with the names of its hosts."""

    ok: bool
    classes: dict[str, dict[str, Any]]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version that was asked about beside the one that is chosen."""

    version: str
    fits: bool
    conflict: tuple[Clash, ...] | UnsetType = UNSET


class Why(Document, frozen=True, kw_only=True, tag="gpusetup/why/1"):
    """Why a component is what it is."""

    ok: Literal[True] = True
    matrix: MatrixStamp
    component: str
    chosen: Any
    reasons: tuple[Reason, ...]
    asked: Asked | UnsetType = UNSET


class WhyNot(Document, frozen=True, kw_only=True, tag="gpusetup/why-not/1"):
    """What forbids a version; `ok` is true where nothing does."""

    ok: bool
    matrix: MatrixStamp
    version: str
    forbidden: bool
    conflict: tuple[Clash, ...] = ()
    suggestions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class MatrixRelease(Document, frozen=True, kw_only=True, tag="gpusetup/matrix-release/1"):
    """A whole matrix in one file; `sha256` is of the files."""

    date: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    sha256: str
    files: dict[str, str]

    @property
    def name(self) -> str:
        """What its folder is called: names sort as the releases' days do."""
        return f"{self.date}-{self.sha256[:12]}"


class Change(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record that came, went, or says something else in another matrix; `fields` holds what it said and says."""

    component: str
    record: str
    what: Literal["added", "changed", "gone"]
    fields: dict[str, tuple[Any, Any]] = {}
