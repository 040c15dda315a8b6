"""Drivers that are known not to build for, or not to run with, a kernel."""

from __future__ import annotations

from typing import Literal

from gpusetup.model.record import MatrixFile, Record


class KernelPair(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver and the kernels that it fails with. Driver packages from `fixed_package` on (Debian order) are sound."""

    driver: str
    """Driver version, or its beginning by whole numbers."""
    module: Literal["open", "proprietary", "any"]
    kernel_from: str
    """The first kernel (upstream version) that fails."""
    kernel_below: str = ""
    """The first kernel that works again; empty: none known."""
    systems: tuple[str, ...] = ()
    """Only on these distributions; empty: everywhere."""
    package: str = ""
    """Only this version of the distribution's package; later packagings of the same driver are patched."""
    symptom: str
    way_out: str


class KernelPairsFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """kernel_pairs.json."""

    pairs: tuple[KernelPair, ...]
