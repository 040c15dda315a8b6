"""What hosts are: the document gpusetup/facts/1.

The host probe writes these fields; name, architecture and compute capability of a GPU are added on the controller
from the matrix. None means "could not be told"; `unreadable` then says why.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

__all__ = [
    "SCHEMA",
    "AutomaticUpgrades",
    "Boot",
    "Candidate",
    "CandidateVersion",
    "Containers",
    "Cuda",
    "Disk",
    "Display",
    "DkmsModule",
    "Driver",
    "DriverInstall",
    "Fabric",
    "Facts",
    "Failure",
    "Firmware",
    "Gpu",
    "HostFacts",
    "Initramfs",
    "InstalledKernel",
    "Interpreter",
    "Kernel",
    "Library",
    "LoadedModule",
    "Lock",
    "ModuleFile",
    "Nouveau",
    "NvSwitch",
    "OperatingSystem",
    "OtherDisplay",
    "Packages",
    "PciLink",
    "Process",
    "Python",
    "Service",
    "Session",
    "SigningKey",
    "Smi",
    "Source",
    "SwitchDevice",
    "Toolkit",
    "Unreadable",
    "Virtualisation",
]

SCHEMA = "gpusetup/facts/1"
Flavour = Literal["open", "proprietary"]
Family = Literal["debian", "redhat", "suse", "unknown"]


class OperatingSystem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """/etc/os-release, with the package family."""

    id: str
    version_id: str
    like: tuple[str, ...] = ()
    codename: str | None = None
    name: str
    family: Family
    glibc: str | None = None

    @property
    def label(self) -> str:
        """The id as `--os` takes it: ubuntu24.04, debian12, rocky9."""
        version = self.version_id if self.id == "ubuntu" else self.version_id.split(".")[0]
        return ("amzn" if self.id == "amzn" else self.id) + version


class ModuleFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NVIDIA kernel module on disk for one kernel."""

    path: str
    version: str | None
    flavour: Flavour | None
    signer: str | None = None


class InstalledKernel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel that the host has: its image, its headers, its initramfs, its NVIDIA module."""

    release: str
    image: bool
    headers: bool
    initramfs: str | None
    nvidia: ModuleFile | None
    nouveau: bool


class Kernel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kernel that runs, the one that boots next (modules are built for it), and all that are installed."""

    running: str
    next: str
    next_basis: str
    cmdline: tuple[str, ...] = ()
    """Arguments of the running kernel that matter to a GPU."""
    cmdline_next: tuple[str, ...] = ()
    compiler: str | None = None
    """The compiler that built the kernel that boots next, such as gcc-12."""
    installed: tuple[InstalledKernel, ...] = ()

    @property
    def target(self) -> InstalledKernel | None:
        """The installed kernel that boots next, None when its files are not on the host."""
        return next((kernel for kernel in self.installed if kernel.release == self.next), None)


class Boot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tells one boot from the next."""

    id: str | None
    time: int | None


class PciLink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The PCI Express link: now and at best."""

    width: int | None = None
    speed: str | None = None
    max_width: int | None = None
    max_speed: str | None = None


class Fabric(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU's place in the NVLink fabric; the status counts once the state is Completed."""

    state: str | None
    status: str | None


class Gpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One NVIDIA GPU: what PCI says, what the matrix knows of it, what nvidia-smi adds when it works."""

    address: str
    pci_id: str
    subsystem: str
    kind: str = field(name="class")
    name: str | None = None
    arch: str | None = None
    compute_capability: str | None = None
    bound: str | None
    """The kernel driver that holds it."""
    numa_node: int | None = None
    boot_display: bool = False
    link: PciLink = PciLink()
    vgpu: bool | None = None
    uuid: str | None = None
    reported_name: str | None = None
    reported_capability: str | None = None
    memory_mib: int | None = None
    driver_version: str | None = None
    persistence: bool | None = None
    mig: str | None = None
    mig_pending: str | None = None
    fabric: Fabric | None = None


class SwitchDevice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An NVSwitch on PCI."""

    address: str
    pci_id: str


class NvSwitch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVSwitches that this machine itself runs: on PCI, or (fourth generation) through ConnectX managers."""

    kind: Literal["pci", "nvlink5"]
    pci: tuple[SwitchDevice, ...] = ()
    devices: int = 0
    managers: tuple[str, ...] = ()


class SigningKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A certificate that DKMS signs modules with."""

    path: str
    sha256: str
    enrolled: bool


class Firmware(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """UEFI and what it enforces."""

    uefi: bool
    setup_mode: bool | None
    lockdown: str | None
    signatures_enforced: bool
    enrolled_keys: tuple[str, ...] = ()
    signing_keys: tuple[SigningKey, ...] = ()


class Virtualisation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What kind of machine this is; `driver_refused` says why no driver may be installed."""

    kind: str
    cloud: str | None
    vendor: str | None
    product: str | None
    laptop: bool
    container: str | None
    wsl: bool
    driver_refused: Literal["wsl", "container"] | None


class LoadedModule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NVIDIA module that the kernel has loaded."""

    version: str | None
    flavour: Flavour | None


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


class Service(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A unit as systemd sees it."""

    unit: str
    active: str | None
    enabled: str | None


class Session(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody at a screen: a user, or the greeter that waits for one."""

    type: str
    kind: str = field(name="class")


class OtherDisplay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A display adapter of another vendor."""

    address: str
    pci_id: str


class Display(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions on a screen, and other GPUs that share the work."""

    sessions: tuple[Session, ...] = ()
    manager: str | None = None
    hybrid: bool = False
    other_gpus: tuple[OtherDisplay, ...] = ()
    laptop: bool = False


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


class Interpreter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The interpreter that ran the probe."""

    path: str
    version: str


class Disk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Room at a place that an install writes to; `same_as` names an earlier place on the same file system."""

    total: int
    free: int
    writable: bool
    same_as: str | None


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

    manager: Literal["apt", "dnf"] | None
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
    modules: tuple[str, ...] = ()
    dkms: tuple[DkmsModule, ...] = ()
    cuda: Cuda
    cudnn: tuple[Library, ...] = ()
    nccl: tuple[Library, ...] = ()
    containers: Containers
    services: dict[str, Service] = {}
    smi: Smi | None
    display: Display
    processes: tuple[Process, ...] = ()
    packages: Packages
    pythons: tuple[Python, ...] = ()
    interpreter: Interpreter | None = None
    disks: dict[str, Disk] = {}
    state: dict[str, Any] | None = None
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def vgpu_guest(self) -> bool:
        """A guest that was given a slice of a GPU: it needs the vendor's guest driver."""
        return any(gpu.vgpu for gpu in self.gpus)


class Failure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host that could not be looked at."""

    reference: str
    message: str
    hint: str = ""
    exit: int


class Facts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document: hosts that were looked at, and those that could not be."""

    schema: Literal["gpusetup/facts/1"] = "gpusetup/facts/1"
    ok: bool = True
    hosts: dict[str, HostFacts]
    failures: dict[str, Failure] = {}
