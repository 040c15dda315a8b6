"""Packages as their manager is told of them."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

Texts = tuple[str, ...]

Built = Literal["prebuilt", "dkms"]
"""How kernel modules come to be: elsewhere, by whoever made the package, or on the host."""

Manager = Literal["apt", "dnf", "zypper"]
"""The package managers that are driven."""


class Package(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A package and the version it must have: its manager's own full version, or a prefix that ends in `*`."""

    name: str
    version: str = ""
    arch: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.version}" if self.version else self.name


class KeyPackage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keyring package that holds a key of which nobody published a fingerprint."""

    url: str
    sha256: str
    member: str


class Key(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What vouches for a repository: full fingerprints, and where the key is; or a keyring package by its digest."""

    fingerprints: Texts | UnsetType = UNSET
    url: str | UnsetType = UNSET
    file: str | UnsetType = UNSET
    package: KeyPackage | UnsetType = UNSET

    @classmethod
    def at(cls, place: str, fingerprints: Texts) -> Key:
        """Return the key with these fingerprints that is at a URL, or at a path on the host."""
        if "://" in place:
            return cls(fingerprints=fingerprints, url=place)
        return cls(fingerprints=fingerprints, file=place)


UNPROVEN = Key()
"""Nothing vouches for it."""


class Installer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The package on a host that a local repository of NVIDIA's comes in; its digest or its key vouches for it."""

    path: str
    directory: str
    sha256: str = ""
    fingerprints: Texts = ()


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repository as the roles are told of it; what is not set is left to them."""

    name: str
    kind: Manager | UnsetType = UNSET
    description: str | UnsetType = UNSET
    like_suite: str | UnsetType = UNSET
    """The host's own entry for this suite says where it is and who vouches for it."""
    uris: Texts | UnsetType = UNSET
    suites: Texts | UnsetType = UNSET
    components: Texts | UnsetType = UNSET
    architectures: Texts | UnsetType = UNSET
    key: Key | UnsetType = UNSET
    installer: Installer | UnsetType = UNSET
    gpgcheck: bool | UnsetType = UNSET
    repo_gpgcheck: bool | UnsetType = UNSET
    module_hotfixes: bool | UnsetType = UNSET
    exclude: Texts | UnsetType = UNSET
    priority: int | UnsetType = UNSET


class Origins(Struct, frozen=True, kw_only=True):
    """Where packages come from."""

    sources: tuple[Source, ...] = ()
    enable: Texts = ()
    """Repositories that are configured on the host and off."""
    replace: Texts = ()
    """Addresses whose other entries are switched off."""


class Pin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What apt is to prefer."""

    packages: Texts
    origin: str = ""
    release: str = ""
    version: str = ""
    priority: int


class Stream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream of a module of dnf."""

    module: str
    stream: str


class CudaRoot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a toolkit is."""

    version: str
    path: str


class Libraries(Struct, frozen=True, kw_only=True):
    """Toolkit, cuDNN and NCCL as packages; what is not among them comes as a wheel."""

    cuda: tuple[Package, ...] = ()
    cudnn: tuple[Package, ...] = ()
    nccl: tuple[Package, ...] = ()
    cuda_roots: tuple[CudaRoot, ...] = ()
    cuda_default: str = ""

    def __bool__(self) -> bool:
        return bool(self.cuda or self.cudnn or self.nccl)


class Runfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVIDIA's `.run` installer on a host; without a digest only its owner and its own check vouch for it."""

    path: str
    version: str
    sha256: str = ""


class PackageSet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that package managers are told about one host."""

    manager: Manager
    sources: tuple[Source, ...] = ()
    enable: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    streams: tuple[Stream, ...] = ()
    prerequisites: tuple[Package, ...] = ()
    driver: tuple[Package, ...] = ()
    fabric: tuple[Package, ...] = ()
    cuda: tuple[Package, ...] = ()
    cudnn: tuple[Package, ...] = ()
    nccl: tuple[Package, ...] = ()
    containers: tuple[Package, ...] = ()
    rdma: tuple[Package, ...] = ()
    monitoring: tuple[Package, ...] = ()
    desktops: tuple[Package, ...] = ()
    python: tuple[Package, ...] = ()
    """What an environment is made with: venv, or a newer Python than the distribution's own."""
    remove: tuple[str, ...] = ()
    may_remove: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    cuda_roots: tuple[CudaRoot, ...] = ()
    cuda_default: str = ""
    built: Built | None = None
    """How the driver's modules come; records of earlier versions do not say it."""
    runfile: Runfile | None = None
    """Where the driver comes from, when it comes from no package."""
    keeps_kernel: bool = False
    """The kernel is held, because no package would bring modules for the next one."""

    def wanted(self) -> tuple[Package, ...]:
        """Return every package by name."""
        return (
            *self.prerequisites, *self.driver, *self.fabric, *self.libraries(), *self.containers, *self.rdma,
            *self.monitoring, *self.desktops, *self.python,
        )  # fmt: skip

    def libraries(self) -> tuple[Package, ...]:
        """Return toolkit, cuDNN and NCCL."""
        return (*self.cuda, *self.cudnn, *self.nccl)
