"""Matrix tables: MIG profiles, RDMA packages and GPUDirect requirements, exporters, vulnerabilities, instances."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from gpusetup.model.package import Manager  # noqa: TC001 - msgspec reads it
from gpusetup.model.record import Arch, MatrixFile, Record, Version
from gpusetup.model.settings import ExporterKind  # noqa: TC001 - msgspec reads it


class MigProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU instance profile: how many instances fit, where one may start, how many memory slices it takes."""

    name: str
    total: int
    starts: tuple[int, ...]
    size: int


class MigProduct(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Products with the same MIG profiles."""

    name: str
    ids: tuple[str, ...]
    reset: bool = False
    """A change of MIG mode needs a reset of the GPU."""
    profiles: tuple[MigProfile, ...]
    balanced: dict[str, int] = field(default_factory=dict)
    """What `all-balanced` means here."""


class MigFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mig.json."""

    products: tuple[MigProduct, ...]


Part = Literal["inbox", "doca", "gdrcopy", "nvidia-fs", "gds-tools"]


class RdmaPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packages of one part; {minor} is a CUDA version written `12-8`."""

    part: Part
    managers: tuple[Manager, ...]
    packages: tuple[str, ...]


class Reach(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a path to GPU memory needs besides the open kernel modules."""

    kernel: Version
    driver: Version
    arches: tuple[Arch, ...] = ()
    """Empty: any."""
    gpus: tuple[str, ...] = ()
    """The first word of products' names; empty: any."""


class Without(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Products without GPUDirect."""

    gpus: tuple[str, ...]


class RdmaFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """rdma.json."""

    packages: tuple[RdmaPackages, ...]
    dma_buf: Reach
    p2pdma: Reach
    without: Without


class DcgmPair(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A release of DCGM and the exporter built and tested with it."""

    dcgm: Version
    exporter: Version


class CudaOfDcgm(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The CUDA major of DCGM's diagnostics by driver branch and architecture; the first matching row counts."""

    min_branch: int
    architectures: tuple[str, ...] = ()
    """Only for these; empty: for all."""
    major: int


class DcgmPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packages of a pair; {major} is the CUDA major."""

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    """Recommended packages; without them, older GPUs have no profiling figures."""
    exporter: str
    older: str
    """The package of DCGM 3 and older, which conflicts with the newer ones."""


class ExporterPackages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The package of an exporter that needs no others."""

    kind: ExporterKind
    managers: tuple[Manager, ...]
    packages: tuple[str, ...]
    """Its possible names, in order of preference."""
    folder: str = ""
    """Its default folder for textfiles; empty: it has none and needs an option."""


class MonitoringFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """monitoring.json."""

    pairs: tuple[DcgmPair, ...]
    """Newest first."""
    cuda: tuple[CudaOfDcgm, ...]
    dcgm: DcgmPackages
    exporters: tuple[ExporterPackages, ...]


Secured = Literal["driver", "cuda", "container-toolkit", "dcgm", "dcgm-exporter"]


class Bulletin(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Vulnerabilities of a component that the same releases fix: one part of an NVIDIA bulletin."""

    component: Secured
    date: str
    cves: dict[str, float]
    """CVE → CVSS base score."""
    fixed: dict[str, Version]
    """Driver branch → its first fixed release; for other components "" → the first fixed release."""


class SecurityFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """security.json."""

    bulletins: tuple[Bulletin, ...]


class Instance(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cloud's machine type."""

    cloud: Literal["aws", "azure", "google", "oracle"]
    name: str
    gpu: str
    count: int
    memory_gb: float | None = None
    """Memory of one GPU, or of the machine's part of one; None if the cloud's document does not say."""
    fabric: str = ""
    """The network between the GPUs of several machines; empty if the document does not say."""
    driver: Literal["datacenter", "vgpu"] = "datacenter"


class InstancesFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """instances.json."""

    instances: tuple[Instance, ...]
