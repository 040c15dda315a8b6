"""What the matrix knows of components: MIG profiles, RDMA packages and what GPUDirect needs, exporters of figures."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from gpusetup.model.package import Manager  # noqa: TC001 - msgspec reads it
from gpusetup.model.record import Arch, MatrixFile, Record, Version
from gpusetup.model.settings import ExporterKind  # noqa: TC001 - msgspec reads it


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


Part = Literal["inbox", "doca", "gdrcopy", "nvidia-fs", "gds-tools"]


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


Secured = Literal["driver", "cuda", "container-toolkit", "dcgm", "dcgm-exporter"]


class Bulletin(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Vulnerabilities of a component that the same releases end: one part of a bulletin of NVIDIA's."""

    component: Secured
    date: str
    cves: dict[str, float]
    """Each with its CVSS base score."""
    fixed: dict[str, Version]
    """Branch of the driver → its first release without them; of everything else "" → the first release at all."""


class SecurityFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """security.json."""

    bulletins: tuple[Bulletin, ...]


class Instance(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine type of a cloud."""

    cloud: Literal["aws", "azure", "google", "oracle"]
    name: str
    gpu: str
    count: int
    memory_gb: float | None = None
    """Of one GPU, or of the part of one that the machine has; None where the cloud's document does not say."""
    fabric: str = ""
    """What connects the GPUs of several machines; empty where the document does not say."""
    driver: Literal["datacenter", "vgpu"] = "datacenter"


class InstancesFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """instances.json."""

    instances: tuple[Instance, ...]
