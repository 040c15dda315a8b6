"""What a host answers between two looks: what its repositories offer, and what the transaction would do."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Offer(Struct, frozen=True, kw_only=True):
    """One version of a package."""

    version: str
    transitional: bool = False


class PreviewFinding(Struct, frozen=True, kw_only=True):
    """What stands in the way, or is worth a word."""

    level: Literal["refuse", "warn", "info"]
    id: str = ""
    text: str = ""
    hint: str = ""
    reference: str = ""


class PreviewTransaction(Struct, frozen=True, kw_only=True):
    """What the package manager would do."""

    remove: dict[str, str] = {}
    download_bytes: int | None = None


class Preview(Struct, frozen=True, kw_only=True):
    """The answer; hosts tell more than is asked for here."""

    findings: tuple[PreviewFinding, ...] = ()
    candidates: dict[str, tuple[Offer, ...]] = {}
    """Versions by package name, newest first."""
    transaction: PreviewTransaction | None = None
    fetched: str = ""
    """Where the host keeps the package lists for what follows; nothing when they are gone."""
