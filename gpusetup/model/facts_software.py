"""Facts of what is installed: drivers, nouveau, libraries, containers, packages. Import from `gpusetup.model.facts`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpusetup.model.facts_machine import Flavour
from gpusetup.model.package import Manager


class LoadedModule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NVIDIA module that the kernel has loaded."""

    version: str | None
    flavour: Flavour | None


class ModuleUse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who uses a loaded module: how many in all, and which other modules."""

    references: int
    holders: tuple[str, ...] = ()


class DriverInstall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One driver on the host by who made it: distribution, nvidia, rpmfusion, other, runfile."""

    origin: Literal["distribution", "nvidia", "rpmfusion", "other", "runfile"]
    version: str | None
    packages: tuple[str, ...] = ()
    uninstaller: str | None = None


class Driver(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The driver: what is installed (`version`), loaded, and in the libraries."""

    version: str | None
    flavour: Flavour | None
    loaded: LoadedModule | None
    library: str | None
    libraries: dict[str, tuple[str, ...]] = {}
    """By name the versions that the dynamic loader could take; more than one is a mixture."""
    library_files: dict[str, str] = {}
    """The files that these are, with their versions."""
    module: str | None
    """Version of the module on disk for the kernel that boots next."""
    mismatch: bool
    origins: tuple[str, ...] = ()
    installs: tuple[DriverInstall, ...] = ()


class Initramfs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One initramfs: does it carry nouveau, does it blacklist it, and if that is unknown, why."""

    path: str
    kernel: str
    nouveau: bool | None
    blacklist: bool | None
    why: str | None


class Nouveau(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """nouveau: loaded now, kept out, and whether the next boot would load it."""

    loaded: bool
    blacklisted: bool
    in_initramfs: bool | None
    blacklist_files: tuple[str, ...] = ()
    cmdline: bool = False
    cmdline_next: bool = False
    loads_at_boot: bool | None = None
    initramfs: tuple[Initramfs, ...] = ()


class DkmsModule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A module in DKMS's tree; without a kernel it was never built there."""

    module: str
    version: str
    kernel: str | None
    arch: str | None
    state: Literal["added", "built", "installed", "failed"]


class Toolkit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CUDA toolkit in its folder."""

    version: str | None
    path: str
    nvcc: bool


class Cuda(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CUDA toolkits side by side, and where /usr/local/cuda leads."""

    toolkits: tuple[Toolkit, ...] = ()
    default: str | None = None


class Library(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cuDNN or NCCL install: the package or header that says so."""

    version: str
    source: str
    package_version: str | None = None


class Containers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Container runtimes and how they are told of the GPU."""

    runtimes: tuple[str, ...] = ()
    toolkit: str | None = None
    configured: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    cdi_drivers: tuple[str, ...] = ()
    """The drivers whose libraries those files name: of another one, containers do not start."""


class Licence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a vGPU guest is licensed with."""

    feature: int | None = None
    """FeatureType of the daemon's settings."""
    server: bool = False
    """Whether they name a legacy licence server."""
    tokens: dict[str, str | None] = {}
    """Names of the tokens, with their SHA-256 where they could be read."""


class Service(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A unit as systemd sees it."""

    unit: str
    active: str | None
    enabled: str | None


class Process(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that holds an NVIDIA device open."""

    pid: int
    command: str


class Python(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An interpreter and the GPU frameworks that it has."""

    path: str
    version: str
    ensurepip: bool
    packages: dict[str, str] = {}
    changeable: str = ""
    """What of it somebody other than root can change: then it was named, and not started."""


class Interpreter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The interpreter that ran the probe."""

    path: str
    version: str


class Smi(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether nvidia-smi works, and if not, why."""

    path: str
    ok: bool
    why: str | None


class CandidateVersion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version that a repository offers."""

    version: str
    sources: tuple[str, ...] = ()


class Candidate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package that the configured repositories offer."""

    candidate: str | None
    installed: str | None = None
    versions: tuple[CandidateVersion, ...] = ()
    size: int | None = None
    """Bytes to download for the candidate itself, without what it needs."""
    transitional: bool = False
    """A stub that only leads to another package."""
    needs: tuple[str, ...] = ()


class Lock(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who works on packages at this moment."""

    file: str
    pid: int
    command: str | None


class AutomaticUpgrades(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the host upgrades itself, and whether it leaves NVIDIA packages alone then."""

    enabled: bool
    excludes_nvidia: bool


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configured package repository."""

    file: str
    uri: str
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    signed_by: str | None = None
    nvidia: bool = False


class Packages(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages that matter to a GPU stack, and the state of the package database."""

    manager: Manager | None
    installed: dict[str, str] = {}
    held: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    lock: Lock | None = None
    automatic_upgrades: AutomaticUpgrades
    sources: tuple[Source, ...] = ()
    candidates: dict[str, Candidate] | None = None


class Unreadable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field that could not be read, and why."""

    field: str
    reason: str
