"""What the lookups answer with `--format json`: light, for every lookup loads it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gpusetup.model.stack import MatrixStamp, Reason, TakenFor


class Clash(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the rules that cannot be kept together."""

    rule: str
    text: str
    source: str


class NoStack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No stack fits: the smallest set of rules that exclude each other, and ways out."""

    schema: Literal["gpusetup/stack/1"] = "gpusetup/stack/1"
    ok: Literal[False] = False
    matrix: MatrixStamp
    conflict: tuple[Clash, ...]
    suggestions: tuple[str, ...]


class MatrixRows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of the matrix; the keys of a row depend on what was looked up, and each has confidence and sources."""

    schema: Literal["gpusetup/matrix/1"] = "gpusetup/matrix/1"
    ok: Literal[True] = True
    matrix: MatrixStamp
    rows: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    fits: dict[str, tuple[str, ...]] | UnsetType = UNSET
    """What else runs on the driver that was asked about."""
    conclusion: str | UnsetType = UNSET
    gpus: tuple[TakenFor, ...] | UnsetType = UNSET
    """What the GPUs' names were taken for."""


class NoRows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No row fits what was asked."""

    schema: Literal["gpusetup/matrix/1"] = "gpusetup/matrix/1"
    ok: Literal[False] = False
    rows: tuple[()] = ()
    conflict: tuple[Clash, ...]
    suggestions: tuple[str, ...] = ()


class MatrixFiles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the matrix is kept."""

    schema: Literal["gpusetup/matrix-files/1"] = "gpusetup/matrix-files/1"
    ok: Literal[True] = True
    files: dict[str, str]


class StackClasses(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stack, conflict or error for each class of hosts that are alike; each with the names of its hosts."""

    schema: Literal["gpusetup/stacks/1"] = "gpusetup/stacks/1"
    ok: bool
    classes: dict[str, dict[str, Any]]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version that was asked about beside the one that is chosen."""

    version: str
    fits: bool
    conflict: tuple[Clash, ...] | UnsetType = UNSET


class Why(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a component is what it is."""

    schema: Literal["gpusetup/why/1"] = "gpusetup/why/1"
    ok: Literal[True] = True
    matrix: MatrixStamp
    component: str
    chosen: Any
    reasons: tuple[Reason, ...]
    asked: Asked | UnsetType = UNSET


class WhyNot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What forbids a version; `ok` is true where nothing does."""

    schema: Literal["gpusetup/why-not/1"] = "gpusetup/why-not/1"
    ok: bool
    matrix: MatrixStamp
    version: str
    forbidden: bool
    conflict: tuple[Clash, ...] = ()
    suggestions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class MatrixRelease(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole matrix in one file; `sha256` is of the files."""

    schema: Literal["gpusetup/matrix-release/1"] = "gpusetup/matrix-release/1"
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
