"""Facts that firmware and owner chose, by which hosts of one kind differ. Import from `gpusetup.model.facts`."""

from __future__ import annotations

from msgspec import Struct


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """BIOS, CPU and IOMMU of a machine."""

    bios_vendor: str | None = None
    bios_version: str | None = None
    bios_date: str | None = None
    board: str | None = None
    cpu: str | None = None
    microcode: str | None = None
    smt: bool | None = None
    governor: str | None = None
    numa_nodes: int | None = None
    iommu: bool | None = None


class Way(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What lies between the processor and a GPU."""

    iommu: str | None = None
    """How its IOMMU group translates: identity (not at all), DMA, DMA-FQ."""
    bridges: int = 0
    above: tuple[str, ...] = ()
    """These bridges, the nearest first; empty too where it was captured before this was looked at."""
    acs_redirect: tuple[str, ...] | None = None
    """Bridges above it whose ACS sends traffic between GPUs up to the root; None: only root reads that."""
    max_payload: int | None = None
    max_read_request: int | None = None
    bar_mib: int | None = None
    """The largest window into the GPU's memory."""


class NvLinks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVLinks of a GPU: how many are up and down, and the slowest of those that are up, GB/s each way."""

    up: int
    down: int
    slowest: float | None = None
