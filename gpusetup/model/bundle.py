"""What a bundle folder holds, every file by its digest: the document gpusetup/bundle/1, its manifest.json."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from gpusetup.model import Document

SCHEMA = "gpusetup/bundle/1"


class BundledFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file."""

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    size: Annotated[int, Meta(ge=0)]


class BundledSystem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What hosts of one release and CPU get from it."""

    gpus: tuple[str, ...]
    lock: str
    """The exact stack, as `gpusetup lock` writes it."""
    locks: tuple[str, ...] = ()
    """Those of further kinds of hosts, which are wanted otherwise or have other hardware."""
    repository: str
    """The folder of the signed repository, as NVIDIA's is named."""
    fingerprint: str
    """Of the key that signs it."""
    vendors: tuple[str, ...] = ()
    """Fingerprints of those whose signatures its packages keep, which hosts check too."""
    packages: dict[str, str]
    """Name → version of each package."""
    sign_unsigned: dict[str, str] = {}
    """Digest upstream → digest here of each package that its vendor did not sign and the bundle's key signs."""
    python: str = ""
    """The Python of the environment; empty: none."""
    wheels: tuple[str, ...] = ()
    """What that environment is made of, and every named one."""
    environments: dict[str, tuple[str, ...]] = {}
    """Of each named environment its wheels."""


class Since(Document, frozen=True, kw_only=True, tag="gpusetup/bundle-since/1"):
    """What a packed bundle leaves out, because the older bundle on the other side has it."""

    manifest_sha256: str
    """Of that older bundle."""
    left_out: tuple[str, ...]


class Manifest(Document, frozen=True, kw_only=True, tag="gpusetup/bundle/1"):
    """The document."""

    gpusetup: Annotated[str, Meta(pattern=r"^[0-9A-Za-z.+!_-]{1,64}\Z")]
    """The version of gpusetup that is in it."""
    serial: Annotated[int, Meta(ge=0)] = 0
    """Greater in every later bundle; 0 in those from before bundles had one."""
    made: str = ""
    """When it was made, in UTC: 2026-01-31T23:59:59Z."""
    pip: str
    """The wheel of pip that installs the others; new machines need not have pip."""
    sets: dict[str, tuple[str, ...]]
    """`3.11-x86_64` → the wheels that make gpusetup run there, and no others."""
    systems: dict[str, BundledSystem] = field(default_factory=dict)
    """`ubuntu24.04-x86_64` → what is there for such hosts; none in a bundle of gpusetup alone."""
    files: dict[str, BundledFile]
    """Path inside the folder → what it must be."""
