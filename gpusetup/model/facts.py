"""Facts about hosts: the document gpusetup/facts/1.

The probe on the host writes these fields; the controller adds a GPU's name, architecture and compute capability from
the matrix. None means unknown; `unreadable` then has the reason.
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
