"""gpusetup's documents as frozen Structs."""

from __future__ import annotations

from msgspec import Struct


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="schema"):
    """A document that commands print and other programs read; its `schema` field holds the tag of its kind."""
