"""Documents about the making of bundles."""

from msgspec import Struct

from gpusetup.model import Success


class BundleMade(Success, frozen=True, kw_only=True, tag="gpusetup/bundle-made/1"):
    """A bundle that was made or checked."""

    path: str
    manifest_sha256: str
    gpusetup: str
    files: int
    bytes: int
    sets: tuple[str, ...]
    systems: tuple[str, ...] = ()


class Carried(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a bundle."""

    name: str
    size: int


class SystemWanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a distribution release needs in a bundle."""

    system: str
    stacks: int
    packages: int
    wheels: int
    bytes: int
    files: tuple[Carried, ...]


class BundleWanted(Success, frozen=True, kw_only=True, tag="gpusetup/bundle-wanted/1"):
    """What a bundle would fetch."""

    systems: tuple[SystemWanted, ...]


class BundleDiff(Success, frozen=True, kw_only=True, tag="gpusetup/bundle-diff/1"):
    """The files of a newer bundle that an older one lacks, and the newer manifest."""

    path: str
    older: str
    bytes: int
    files: tuple[Carried, ...]
