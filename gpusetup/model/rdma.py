"""RDMA and GPUDirect: what was chosen for one host, and what the matrix knows of packages and of what is needed."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpusetup.model.package import Manager  # noqa: TC001 - msgspec reads it
from gpusetup.model.record import Arch, MatrixFile, Record, Version

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
