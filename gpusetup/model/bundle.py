"""What a bundle folder holds, every file by its digest: the document gpusetup/bundle/1, its manifest.json."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["SCHEMA", "BundledFile", "Manifest"]

SCHEMA = "gpusetup/bundle/1"


class BundledFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file."""

    sha256: str
    size: int


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document."""

    schema: Literal["gpusetup/bundle/1"] = "gpusetup/bundle/1"
    gpusetup: str
    """The version of gpusetup that is in it."""
    pip: str
    """The wheel of pip that installs the others; new machines need not have pip."""
    sets: dict[str, tuple[str, ...]]
    """`3.11-x86_64` → the wheels that make gpusetup run there, and no others."""
    files: dict[str, BundledFile]
    """Path inside the folder → what it must be."""
