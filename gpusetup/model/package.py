"""Packages, repositories and keys as passed to the package managers."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

Texts = tuple[str, ...]

Built = Literal["prebuilt", "dkms"]
"""How kernel modules are built: before packaging, or on the host by DKMS."""

Manager = Literal["apt", "dnf", "zypper"]
"""The supported package managers."""


class Package(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A package and its required version: the manager's full version, or a prefix that ends in `*`."""

    name: str
    version: str = ""
    arch: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.version}" if self.version else self.name


class KeyPackage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keyring package of a key without a published fingerprint."""

    url: str
    sha256: str
    member: str


class Key(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to trust a repository: full fingerprints and the key's place, or a keyring package with its digest."""

    fingerprints: Texts | UnsetType = UNSET
    url: str | UnsetType = UNSET
    file: str | UnsetType = UNSET
    package: KeyPackage | UnsetType = UNSET

    @classmethod
    def at(cls, place: str, fingerprints: Texts) -> "Key":
        """Return the key with these fingerprints at a URL or at a path on the host."""
        if "://" in place:
            return cls(fingerprints=fingerprints, url=place)
        return cls(fingerprints=fingerprints, file=place)


UNPROVEN = Key()
"""No key: the repository cannot be trusted."""


class Installer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An NVIDIA local repository package on a host; it is trusted by its digest or its key."""

    path: str
    directory: str
    sha256: str = ""
    fingerprints: Texts = ()


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repository as passed to the roles; they fill in what is not set."""

    name: str
    kind: Manager | UnsetType = UNSET
    description: str | UnsetType = UNSET
    like_suite: str | UnsetType = UNSET
    """Take address and key from the host's own entry for this suite."""
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
    """The repositories of packages."""

    sources: tuple[Source, ...] = ()
    enable: Texts = ()
    """Repositories to enable that are configured on the host and disabled."""
    replace: Texts = ()
    """Addresses whose other entries are disabled."""


class Pin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A preference of apt."""

    packages: Texts
    origin: str = ""
    release: str = ""
    version: str = ""
    priority: int


class Stream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream of a dnf module."""

    module: str
    stream: str


class CudaRoot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The folder of a toolkit."""

    version: str
    path: str


class Libraries(Struct, frozen=True, kw_only=True):
    """Toolkit, cuDNN and NCCL as packages; those without packages come as wheels."""

    cuda: tuple[Package, ...] = ()
    cudnn: tuple[Package, ...] = ()
    nccl: tuple[Package, ...] = ()
    cuda_roots: tuple[CudaRoot, ...] = ()
    cuda_default: str = ""

    def __bool__(self) -> bool:
        return bool(self.cuda or self.cudnn or self.nccl)


class Runfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVIDIA's `.run` installer on a host; without a digest, only its owner and its own checksum are checked."""

    path: str
    version: str
    sha256: str = ""


class PackageSet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that the package manager of one host is to do."""

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
    """Packages for creating an environment: venv, or a newer Python than the distribution's own."""
    remove: tuple[str, ...] = ()
    may_remove: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    cuda_roots: tuple[CudaRoot, ...] = ()
    cuda_default: str = ""
    built: Built | None = None
    """How the driver's modules are built; None in records of earlier versions."""
    runfile: Runfile | None = None
    """The driver's installer, when it comes from no package."""
    keeps_kernel: bool = False
    """The kernel is held because no package would provide modules for the next one."""

    def wanted(self) -> tuple[Package, ...]:
        """Return every package to install."""
        return (
            *self.prerequisites, *self.driver, *self.fabric, *self.libraries(), *self.containers, *self.rdma,
            *self.monitoring, *self.desktops, *self.python,
        )  # fmt: skip

    def libraries(self) -> tuple[Package, ...]:
        """Return the packages of toolkit, cuDNN and NCCL."""
        return (*self.cuda, *self.cudnn, *self.nccl)
