"""The documents that flow through gpusetup, as frozen Structs."""

from __future__ import annotations

from msgspec import Struct


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="schema"):
    """What commands print and other programs read: the tag of each kind is the schema that it begins with."""
