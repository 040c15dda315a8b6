"""Packages as their manager is told of them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

__all__ = ["Manager", "Package", "PackageSet"]

Manager = Literal["apt", "dnf", "zypper"]
"""The package managers that are driven."""


class Package(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A package and the version it must have: its manager's own full version, or a prefix that ends in `*`."""

    name: str
    version: str = ""
    arch: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.version}" if self.version else self.name


class PackageSet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that package managers are told about one host."""

    manager: Manager
    sources: tuple[dict[str, Any], ...] = ()
    enable: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    pins: tuple[dict[str, Any], ...] = ()
    streams: tuple[dict[str, str], ...] = ()
    prerequisites: tuple[Package, ...] = ()
    driver: tuple[Package, ...] = ()
    fabric: tuple[Package, ...] = ()
    cuda: tuple[Package, ...] = ()
    cudnn: tuple[Package, ...] = ()
    nccl: tuple[Package, ...] = ()
    containers: tuple[Package, ...] = ()
    python: tuple[Package, ...] = ()
    """What an environment is made with: venv, or a newer Python than the distribution's own."""
    remove: tuple[str, ...] = ()
    may_remove: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    cuda_roots: tuple[dict[str, str], ...] = ()
    cuda_default: str = ""

    def wanted(self) -> tuple[Package, ...]:
        """Return every package by name."""
        return (
            *self.prerequisites, *self.driver, *self.fabric, *self.cuda, *self.cudnn, *self.nccl, *self.containers,
            *self.python,
        )  # fmt: skip
