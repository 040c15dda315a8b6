"""Add people's own records to the shipped ones: `NAME.more.json` in the overlay folder holds only what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from gpusetup.model.record import MatrixFile

__all__ = ["complete", "extended"]

File = TypeVar("File", bound="MatrixFile")


def complete(addition: bytes, base: MatrixFile) -> bytes:
    """Return the addition as a whole document: fields that it leaves out are empty, its day is the base's."""
    raw: dict[str, Any] = msgspec.json.decode(addition, type=dict[str, Any])
    whole: dict[str, Any] = {}
    for name in base.__struct_fields__:
        value = getattr(base, name)
        whole[name] = {} if isinstance(value, dict) else [] if isinstance(value, tuple) else value
    return msgspec.json.encode(whole | raw)


def extended(base: File, addition: MatrixFile) -> File:
    """Return the base with the addition's records behind its own; a source of the same key is the addition's."""
    changes: dict[str, Any] = {}
    for name in base.__struct_fields__:
        ours, theirs = getattr(base, name), getattr(addition, name)
        if isinstance(ours, dict):
            changes[name] = {**ours, **theirs}
        elif isinstance(ours, tuple):
            changes[name] = (*ours, *theirs)
    return msgspec.structs.replace(base, date=max(base.date, addition.date), **changes)
