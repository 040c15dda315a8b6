"""The catalogue of Xid numbers: meaning, gravity and action, each with its source."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from gpusetup.model.verdict import Verdict

__all__ = ["Meaning", "Source", "XidCatalogue", "catalogue", "known", "meaning"]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document somebody can look up."""

    title: str
    publisher: str
    url: str = ""


class Meaning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an Xid says and how grave it is."""

    verdict: Verdict
    text: str
    action: str
    bucket: str = "unknown"
    """What NVIDIA's catalogue calls the immediate action."""
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


def known(number: int) -> Meaning | None:
    """Return what an Xid means, None of one that the catalogue lacks."""
    return catalogue().xids.get(number)


def meaning(number: int) -> Meaning:
    """Return what an Xid means; an unknown one says so."""
    return known(number) or catalogue().default
