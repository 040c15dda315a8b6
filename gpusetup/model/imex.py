"""IMEX: the service that shares GPU memory between the machines of one NVLink domain."""

from __future__ import annotations

from msgspec import Struct


class ImexWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines of a domain, all of them on each, and how many channels programs may use."""

    nodes: tuple[str, ...]
    channels: int = 1
