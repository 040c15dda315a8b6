"""A package as its manager is told of it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["Manager", "Package"]

Manager = Literal["apt", "dnf", "zypper"]
"""The package managers that are driven."""


class Package(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A package and the version it must have: its manager's own full version, or a prefix that ends in `*`."""

    name: str
    version: str = ""
    arch: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.version}" if self.version else self.name
