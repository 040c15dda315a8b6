"""Smaller matrix tables: GPU figures, images, kernels, wheels, MIG, RDMA, exporters, instances."""

# No `from __future__ import annotations` here: msgspec would compile every annotation again at each start.
from typing import Literal, NamedTuple

from msgspec import Struct, field

from gpusetup.model.package import Manager
from gpusetup.model.record import Arch, MatrixFile, Record, Version
from gpusetup.model.settings import ExporterKind


class GpuFigures(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of one or several products that share them; None: no source found."""

    names: tuple[str, ...]
    """Names in gpus.json."""
    memory_gb: int | float | None = None
    memory_type: str | None = None
    bandwidth_gbs: int | float | None = None
    """Memory bandwidth, GB/s."""
    power_w: int | float | None = None
    """Maximum power, watts."""
    nvlink_gbs: int | float | None = None
    """All links of one GPU, both directions together, GB/s; 0: it has none."""
    fp16: int | float | None = None
    """Matrix rates in TFLOP/s, dense (without sparsity), with FP32 accumulation."""
    bf16: int | float | None = None
    fp8: int | float | None = None


class GpuFiguresFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """gpu_figures.json."""

    gpus: tuple[GpuFigures, ...]


class CudaImage(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The images of one CUDA release; each system has a base, a runtime and a devel image."""

    cuda: Version
    systems: dict[Arch, tuple[str, ...]]
    """CPU → distribution ids in os.json."""


class ImagesFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """images.json."""

    tags: dict[str, str]
    """Distribution → its name in the tag, if that differs."""
    images: tuple[CudaImage, ...]


class KernelPair(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver and the kernels that it fails with."""

    driver: str
    """Driver version, or a prefix of whole numbers."""
    module: Literal["open", "proprietary", "any"]
    kernel_from: str
    """The first kernel (upstream version) that fails."""
    kernel_below: str = ""
    """The first kernel that works again; empty: none known."""
    systems: tuple[str, ...] = ()
    """Only on these distributions; empty: on all."""
    package: str = ""
    """Only this version of the distribution's package; later packages of the same driver are patched."""
    symptom: str
    way_out: str


class KernelPairsFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """kernel_pairs.json."""

    pairs: tuple[KernelPair, ...]


class Size(NamedTuple):
    """Bytes of one wheel; wheels for other Pythons differ slightly."""

    download: int
    installed: int


class Closure(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that one line of a requirements file installs."""

    pin: str
    arch: Arch
    python: str
    """The Python for which it was resolved."""
    wheels: tuple[str, ...]
    """As name==version."""


class WheelsFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """wheels.json."""

    closures: tuple[Closure, ...]
    sizes: dict[Arch, dict[str, Size]]
    """CPU → name==version → sizes."""


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
