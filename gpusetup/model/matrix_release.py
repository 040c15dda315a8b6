"""A release of the matrix: the file that travels, and how two of them differ."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


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
