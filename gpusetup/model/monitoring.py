"""What exports a host's figures to Prometheus: what was chosen for one host, and what the matrix knows of exporters."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpusetup.model.package import Manager  # noqa: TC001 - msgspec reads it
from gpusetup.model.record import MatrixFile, Record, Version

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
