"""gpusetup's documents as frozen Structs."""

from __future__ import annotations

from typing import Literal

from msgspec import Meta, Struct


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="schema"):
    """A document that commands print and other programs read; its `schema` field holds the tag of its kind."""


class Success(Document, frozen=True, kw_only=True):
    """A document that a command prints only when it did what it was asked to do."""

    ok: Literal[True] = True


def whole(pattern: str, *, max_length: int | None = None) -> Meta:
    """Return the constraint that a whole text fits a pattern; Python's `$` alone also matches before a last newline."""
    return Meta(pattern=rf"^{pattern}$(?!\n)", max_length=max_length)
