"""Smaller matrix tables: GPU figures, container images, drivers that fail with certain kernels, sizes of wheels."""

# No `from __future__ import annotations` here: msgspec would compile every annotation again at each start.
from typing import Literal, NamedTuple

from gpusetup.model.record import Arch, MatrixFile, Record, Version


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
