"""Host keys before the first connection: what each host showed, and whether it is the key that it should have."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

KeyState = Literal["known", "confirmed", "replaced", "accepted", "unconfirmed", "changed", "another-key", "unreachable"]


class HostKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host."""

    state: KeyState
    address: str
    """As ssh names it in its files."""
    fingerprints: tuple[str, ...] = ()
    message: str = ""


class KnownHosts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document."""

    schema: Literal["gpusetup/known-hosts/1"] = "gpusetup/known-hosts/1"
    ok: bool
    path: str
    hosts: dict[str, HostKeys]
