"""A bundle folder's manifest.json: the document gpusetup/bundle/1, with the digest of every file."""

from typing import Annotated

from msgspec import Meta, Struct, field

from gpusetup.model import Document, whole

SCHEMA = "gpusetup/bundle/1"


class BundledFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file."""

    sha256: Annotated[str, whole(r"[0-9a-f]{64}")]
    size: Annotated[int, Meta(ge=0)]


class BundledSystem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What hosts with one distribution release and CPU get from the bundle."""

    gpus: tuple[str, ...]
    lock: str
    """The exact stack, as `gpusetup lock` writes it."""
    locks: tuple[str, ...] = ()
    """Further locks, for hosts with other requirements or hardware."""
    repository: str
    """The folder of the signed repository, named as on NVIDIA's server."""
    fingerprint: str
    """Fingerprint of the key that signs the repository."""
    vendors: tuple[str, ...] = ()
    """Fingerprints of the vendors' keys that signed its packages; hosts check these signatures too."""
    packages: dict[str, str]
    """Package name → version."""
    sign_unsigned: dict[str, str] = {}
    """For packages without a vendor's signature, signed by the bundle's key: upstream digest → digest here."""
    python: str = ""
    """The Python of the environment; empty: none."""
    wheels: tuple[str, ...] = ()
    """The wheels of the default environment and of all named ones."""
    environments: dict[str, tuple[str, ...]] = {}
    """Named environment → its wheels."""


class Manifest(Document, frozen=True, kw_only=True, tag="gpusetup/bundle/1"):
    """The document."""

    gpusetup: Annotated[str, whole(r"[0-9A-Za-z.+!_-]{1,64}")]
    """The bundled version of gpusetup."""
    serial: Annotated[int, Meta(ge=0)] = 0
    """Increases with every bundle; 0 in bundles from before there was a serial."""
    made: str = ""
    """When it was made, in UTC: 2026-01-31T23:59:59Z."""
    pip: str
    """The wheel of pip that installs the others, for machines without pip."""
    sets: dict[str, tuple[str, ...]]
    """`3.11-x86_64` → exactly the wheels that gpusetup needs there."""
    systems: dict[str, BundledSystem] = field(default_factory=dict)
    """`ubuntu24.04-x86_64` → the contents for such hosts; empty in a bundle of gpusetup alone."""
    files: dict[str, BundledFile]
    """Path inside the folder → digest and size."""
