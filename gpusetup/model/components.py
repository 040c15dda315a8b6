"""What people ask of components, what hosts record of them, and what the matrix knows of them."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from gpusetup.model.package import Manager  # noqa: TC001 - msgspec reads it
from gpusetup.model.record import Arch, MatrixFile, Record, Version
from gpusetup.model.request import Requirement
from gpusetup.model.stack import Stack


class ImexWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines of a domain, all of them on each, and how many channels programs may use."""

    nodes: tuple[str, ...]
    channels: int = 1


BackEnd = Literal["egl", "x"]
"""How VirtualGL reaches a GPU: by EGL without any X server there, or through an X server without a screen."""


class DesktopsWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who gets a desktop, and where it is reached."""

    users: tuple[str, ...]
    """The order counts: the first one's page is at the first port."""
    size: str = "1920x1080"
    session: str = ""
    """The program that draws the desktop; empty: a small window manager that comes along."""
    listen: str = "127.0.0.1"
    port: int = 6080
    certificate: str = ""
    key: str = ""
    group: str = ""
    """Who alone may use the GPUs; empty: as the driver and the distribution have it."""
    backend: BackEnd = "egl"


class EnvironmentWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment as it is asked for."""

    name: str
    requirements: tuple[Requirement, ...]


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment as a host is to have it."""

    name: str
    path: str
    """The link that names it."""
    stack: Stack
    """With the driver that all environments of the host share."""
    requirements: tuple[str, ...]
    interpreter: str = ""
    """What it is made with; empty: the system's own Python."""


class RoleEnvironment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same as the role takes it."""

    name: str
    path: str
    requirements: tuple[str, ...]
    interpreter: str = ""


class MigInstances(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPU instances of one profile; a count of 0 is as many as there can be."""

    profile: str
    count: int = 1
    compute: tuple[str, ...] = ()
    """Compute instances in each; empty: one that has all of it."""


class MigWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a GPU is to be cut; `gpu` is `all`, a number or a UUID."""

    gpu: str
    enabled: bool
    instances: tuple[MigInstances, ...] = ()
    layout: str = ""
    """A name that stands for instances which differ by product (all-balanced)."""


class MigLayout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one GPU is to have; `gpu` is its PCI address."""

    gpu: str
    enabled: bool
    instances: tuple[MigInstances, ...] = ()


class MigInstance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU instance that is there, and its compute instances."""

    profile: str
    start: int
    compute: tuple[str, ...] = ()


class RecordedInstance(Struct, frozen=True, kw_only=True):
    """An instance on record; one that waits for a boot may have a count, and has no place."""

    profile: str
    compute: tuple[str, ...]
    start: int | UnsetType = UNSET
    count: int | UnsetType = UNSET


class MigCut(Struct, frozen=True, kw_only=True):
    """A GPU as it was found, or was left."""

    enabled: bool
    instances: tuple[RecordedInstance, ...]


class MigDevice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What programs see of it: a name and a UUID."""

    profile: str
    uuid: str


class MigProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU instance profile: how many there can be, where one may begin, how many memory slices it takes."""

    name: str
    total: int
    starts: tuple[int, ...]
    size: int


class MigProduct(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Products that are cut alike."""

    name: str
    ids: tuple[str, ...]
    reset: bool = False
    """A change of mode needs a reset of the GPU."""
    profiles: tuple[MigProfile, ...]
    balanced: dict[str, int] = field(default_factory=dict)
    """What `all-balanced` means here."""


class MigFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mig.json."""

    products: tuple[MigProduct, ...]


RdmaStack = Literal["none", "inbox", "doca"]
"""The distribution's own rdma-core, or NVIDIA's DOCA-OFED."""
DirectMemory = Literal["auto", "dma-buf", "nvidia-peermem"]
"""How an adapter reaches GPU memory."""
StorageMode = Literal["none", "auto", "p2pdma", "nvidia-fs"]
"""How files come into GPU memory without a copy through the host."""
Part = Literal["inbox", "doca", "gdrcopy", "nvidia-fs", "gds-tools"]


class GpuDirect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What of RDMA and GPUDirect a host has."""

    stack: RdmaStack = "none"
    memory: Literal["", "dma-buf", "nvidia-peermem"] = ""
    """Empty: nothing reaches GPU memory but through the host's own."""
    storage: Literal["none", "p2pdma", "nvidia-fs"] = "none"
    modules: tuple[str, ...] = ()
    """Loaded at every boot."""


class RdmaPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packages of one part; {minor} is a CUDA as `12-8`."""

    part: Part
    managers: tuple[Manager, ...]
    packages: tuple[str, ...]


class Reach(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a way to GPU memory needs, beside the open kernel modules."""

    kernel: Version
    driver: Version
    arches: tuple[Arch, ...] = ()
    """Empty: any."""
    gpus: tuple[str, ...] = ()
    """The first word of products' names; empty: any."""


class Without(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Products that have nothing of GPUDirect."""

    gpus: tuple[str, ...]


class RdmaFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """rdma.json."""

    packages: tuple[RdmaPackages, ...]
    dma_buf: Reach
    p2pdma: Reach
    without: Without


ExporterKind = Literal["dcgm", "nvidia_gpu_exporter", "textfile"]


class Exporter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What exports the figures of one host, and where."""

    kind: ExporterKind
    listen: str = ""
    """Address and port; empty: a node_exporter that is somebody else's, whose address is theirs."""
    folder: str = ""
    """Where the textfile goes."""
    dcgm: str = ""
    """The version of DCGM: it decides what the counters are called."""
    certificate: str = ""
    key: str = ""
    passwords: str = ""
    """Paths on the host, of what anybody needs who asks from elsewhere."""
    why: str = ""
    """Why this one."""


class DcgmPair(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A release of DCGM and the exporter that was made and tested with it."""

    dcgm: Version
    exporter: Version


class CudaOfDcgm(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For which CUDA major DCGM's diagnostics are, by driver branch and architecture; the first fitting row counts."""

    min_branch: int
    architectures: tuple[str, ...] = ()
    """Only for these; empty: for all."""
    major: int


class DcgmPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packages of a pair; {major} is that of the CUDA."""

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    """Recommended by the others, and where they are lacking the profiling figures of older GPUs are too."""
    exporter: str
    older: str
    """DCGM 3 and older: the two exclude each other."""


class ExporterPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The package of an exporter that needs no other beside it."""

    kind: ExporterKind
    managers: tuple[Manager, ...]
    packages: tuple[str, ...]
    """Its names, the best first."""
    folder: str = ""
    """Where it reads textfiles by itself; empty: it must be told."""


class MonitoringFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """monitoring.json."""

    pairs: tuple[DcgmPair, ...]
    """The newest first."""
    cuda: tuple[CudaOfDcgm, ...]
    dcgm: DcgmPackages
    exporters: tuple[ExporterPackages, ...]
