"""What gpusetup's own error references (GS-324) say: read from the list that tools/references.py writes."""

from __future__ import annotations

import re
from functools import cache

import msgspec
from msgspec import Struct

from gpusetup.doctor.catalogue import read_table

__all__ = ["Said", "reference_in", "told"]

_REFERENCE = re.compile(r"\s*\[?(GS-\d{3})\]?\s*", re.IGNORECASE)


class Said(Struct, frozen=True, forbid_unknown_fields=True):
    """One message with a reference; … stands for what differs from case to case."""

    message: str
    hint: str


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    references: dict[str, tuple[Said, ...]]


@cache
def _list() -> dict[str, tuple[Said, ...]]:
    return msgspec.json.decode(read_table("references.json"), type=_File).references


def reference_in(text: str) -> str:
    """Return the reference that a text is, and nothing else; empty for any other text."""
    found = _REFERENCE.fullmatch(text)
    return found[1].upper() if found else ""


def told(reference: str) -> tuple[Said, ...]:
    """Return what is said with a reference; nothing for one that does not exist."""
    return _list().get(reference, ())
