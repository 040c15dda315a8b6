"""Facts about hosts: the document gpusetup/facts/1, and what is installed; what the machine is: `facts_machine`.

The probe on the host writes these fields; the controller adds a GPU's name, architecture and compute capability from
the matrix. None means unknown; `unreadable` then has the reason.
"""

from typing import Literal

from msgspec import Struct, field

from gpusetup.model import Document
from gpusetup.model.applied import HostRecord
from gpusetup.model.facts_machine import (
    Boot,
    Disk,
    Display,
    Firmware,
    Flavour,
    Gpu,
    Kernel,
    NvSwitch,
    OperatingSystem,
    Rdma,
    Settings,
    Storage,
    Virtualisation,
)
from gpusetup.model.package import Manager
from gpusetup.model.plan import Work

LOCAL_NAME = "localhost"
"""The name of this machine where documents name hosts."""


class LoadedModule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The loaded NVIDIA kernel module."""

    version: str | None
    flavour: Flavour | None


class ModuleUse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The users of a loaded module: how many in total, and which other modules."""

    references: int
    holders: tuple[str, ...] = ()


class DriverInstall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One driver on the host by its origin."""

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
    """Library name → the versions that the dynamic loader could take; more than one is a mixture."""
    library_files: dict[str, str] = {}
    """The files of these libraries → their versions."""
    module: str | None
    """Version of the module on disk for the kernel that boots next."""
    mismatch: bool
    origins: tuple[str, ...] = ()
    installs: tuple[DriverInstall, ...] = ()


class Initramfs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One initramfs: whether it contains nouveau and blacklists it, and if unknown, why."""

    path: str
    kernel: str
    nouveau: bool | None
    blacklist: bool | None
    why: str | None


class Nouveau(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """nouveau: whether it is loaded, blacklisted, and would be loaded by the next boot."""

    loaded: bool
    blacklisted: bool
    in_initramfs: bool | None
    blacklist_files: tuple[str, ...] = ()
    cmdline: bool = False
    cmdline_next: bool = False
    loads_at_boot: bool | None = None
    initramfs: tuple[Initramfs, ...] = ()


class DkmsModule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A module in DKMS's tree; without a kernel it was never built."""

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
    """The installed CUDA toolkits, and the target of /usr/local/cuda."""

    toolkits: tuple[Toolkit, ...] = ()
    default: str | None = None


class Library(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An installed cuDNN or NCCL; `source` is the package or header that shows it."""

    version: str
    source: str
    package_version: str | None = None


class Containers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Container runtimes and their GPU configuration."""

    runtimes: tuple[str, ...] = ()
    toolkit: str | None = None
    configured: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    cdi_drivers: tuple[str, ...] = ()
    """The driver versions in the CDI files: with another driver, containers do not start."""


class Licence(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The licence settings of a vGPU guest."""

    feature: int | None = None
    """FeatureType in the daemon's settings."""
    server: bool = False
    """Whether the settings name a legacy licence server."""
    tokens: dict[str, str | None] = {}
    """Token name → SHA-256; null if it cannot be read."""


class Service(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A systemd unit."""

    unit: str
    active: str | None
    enabled: str | None


class Process(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that holds an NVIDIA device open."""

    pid: int
    command: str


class Python(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Python interpreter and its GPU frameworks."""

    path: str
    version: str
    ensurepip: bool
    packages: dict[str, str] = {}
    changeable: str = ""
    """The part of it that users other than root can change; if there is one, the probe did not run it."""


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
    """A version offered by repositories."""

    version: str
    sources: tuple[str, ...] = ()


class Candidate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package offered by the configured repositories."""

    candidate: str | None
    installed: str | None = None
    versions: tuple[CandidateVersion, ...] = ()
    size: int | None = None
    """Bytes to download for the candidate itself, without its dependencies."""
    transitional: bool = False
    """An empty package that only depends on another one."""
    needs: tuple[str, ...] = ()


class Lock(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that holds the package manager's lock."""

    file: str
    pid: int
    command: str | None


class AutomaticUpgrades(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the host upgrades packages automatically, and whether it then skips NVIDIA's."""

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
    """Packages relevant to a GPU stack, and the state of the package database."""

    manager: Manager | None
    installed: dict[str, str] = {}
    held: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    lock: Lock | None = None
    automatic_upgrades: AutomaticUpgrades
    sources: tuple[Source, ...] = ()
    disabled: tuple[str, ...] = ()
    """Ids of dnf and zypper repositories that are configured and switched off."""
    candidates: dict[str, Candidate] | None = None


class Unreadable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field that could not be read, and why."""

    field: str
    reason: str


SCHEMA = "gpusetup/facts/1"


class HostFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about one host. `simulated`: its PCI, virtualisation, firmware and kernel come from a capture."""

    simulated: bool = False
    os: OperatingSystem
    arch: str
    kernel: Kernel
    boot: Boot
    gpus: tuple[Gpu, ...]
    nvswitch: NvSwitch | None
    driver: Driver | None
    nouveau: Nouveau
    secure_boot: bool | None
    firmware: Firmware
    virtualisation: Virtualisation
    settings: Settings | None = None
    """None in captures from before this was probed."""
    rdma: Rdma | None = None
    """None without an RDMA adapter."""
    storage: Storage | None = None
    """None if no part of GPUDirect Storage is installed."""
    modules: tuple[str, ...] = ()
    module_users: dict[str, ModuleUse] = {}
    dkms: tuple[DkmsModule, ...] = ()
    cuda: Cuda
    cudnn: tuple[Library, ...] = ()
    nccl: tuple[Library, ...] = ()
    containers: Containers
    services: dict[str, Service] = {}
    licence: Licence | None = None
    smi: Smi | None
    display: Display
    processes: tuple[Process, ...] = ()
    work: tuple[Work, ...] = ()
    """The scheduler's jobs on the host; only when making a plan."""
    packages: Packages
    pythons: tuple[Python, ...] = ()
    interpreter: Interpreter | None = None
    disks: dict[str, Disk] = {}
    state: HostRecord | None = None
    """gpusetup's record on the host; None if there is none or it cannot be read."""
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def vgpu_guest(self) -> bool:
        """Whether the host is a guest with a vGPU, which needs NVIDIA's guest driver."""
        return any(gpu.vgpu for gpu in self.gpus)

    @property
    def record_unread(self) -> str:
        """Why the record cannot be read; "" if it can, or there never was one."""
        if self.state is not None:
            return ""
        return next((item.reason for item in self.unreadable if item.field == "state"), "")

    @property
    def record_lost(self) -> str:
        """Why the record is damaged or missing; "" if it is readable, never existed or needs root to read."""
        return "" if "ermission denied" in self.record_unread else self.record_unread


class Failure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host whose facts could not be read."""

    reference: str
    message: str
    hint: str = ""
    exit: int

    def __str__(self) -> str:
        """Return the message with the hint."""
        return f"{self.message} [{self.reference}]" + (f"; {self.hint}" if self.hint else "")


class Facts(Document, frozen=True, kw_only=True, tag="gpusetup/facts/1"):
    """The document: the facts of hosts, and the hosts whose facts could not be read."""

    ok: bool = True
    hosts: dict[str, HostFacts]
    failures: dict[str, Failure] = field(default_factory=dict)
