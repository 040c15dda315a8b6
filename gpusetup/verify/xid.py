"""The catalogue of Xid numbers: meaning, gravity and action, each with its source."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from gpusetup.model.verdict import Verdict
from gpusetup.verify.expected import Source

__all__ = ["Meaning", "XidCatalogue", "catalogue", "meaning"]


class Meaning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an Xid says and how grave it is."""

    verdict: Verdict
    text: str
    action: str
    sources: tuple[str, ...] = ()


class XidCatalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file."""

    schema: str
    date: str
    sources: dict[str, Source]
    default: Meaning
    xids: dict[int, Meaning]


@cache
def catalogue() -> XidCatalogue:
    """Load the catalogue."""
    return msgspec.json.decode((Path(__file__).parent / "data/xid.json").read_bytes(), type=XidCatalogue)


def meaning(number: int) -> Meaning:
    """Return what an Xid means; an unknown one says so."""
    return catalogue().xids.get(number, catalogue().default)
