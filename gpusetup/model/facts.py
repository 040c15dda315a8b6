"""What hosts are: the document gpusetup/facts/1.

The host probe writes these fields; name, architecture and compute capability of a GPU are added on the controller
from the matrix. None means "could not be told"; `unreadable` then says why.
"""

from __future__ import annotations

from msgspec import Struct, field

from gpusetup.model import Document
from gpusetup.model.applied import HostRecord
from gpusetup.model.facts_machine import (
    Boot,
    Disk,
    Display,
    Firmware,
    Gpu,
    Kernel,
    NvSwitch,
    OperatingSystem,
    Rdma,
    Settings,
    Storage,
    Virtualisation,
)
from gpusetup.model.facts_software import (
    Containers,
    Cuda,
    DkmsModule,
    Driver,
    Interpreter,
    Library,
    Licence,
    ModuleUse,
    Nouveau,
    Packages,
    Process,
    Python,
    Service,
    Smi,
    Unreadable,
)
from gpusetup.model.plan import Work

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
    """None from what was captured before this was looked at."""
    rdma: Rdma | None = None
    """None without an adapter that has RDMA."""
    storage: Storage | None = None
    """None where nothing of GPUDirect Storage is installed."""
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
    """Where a plan is made: what the host's scheduler runs there."""
    packages: Packages
    pythons: tuple[Python, ...] = ()
    interpreter: Interpreter | None = None
    disks: dict[str, Disk] = {}
    state: HostRecord | None = None
    """What gpusetup did here before, None when it did nothing or its record cannot be read."""
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

    def __str__(self) -> str:
        """Return what happened, and what to do about it."""
        return f"{self.message} [{self.reference}]" + (f"; {self.hint}" if self.hint else "")


class Facts(Document, frozen=True, kw_only=True, tag="gpusetup/facts/1"):
    """The document: hosts that were looked at, and those that could not be."""

    ok: bool = True
    hosts: dict[str, HostFacts]
    failures: dict[str, Failure] = field(default_factory=dict)
