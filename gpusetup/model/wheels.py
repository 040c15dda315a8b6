"""How big the wheels of a Python environment are."""

from __future__ import annotations

from typing import NamedTuple

from gpusetup.model.record import Arch, MatrixFile, Record


class Size(NamedTuple):
    """Bytes of one wheel; those for another Python differ by a few."""

    download: int
    installed: int


class Closure(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that comes with one line of a requirements file."""

    pin: str
    arch: Arch
    python: str
    """For which it was resolved."""
    wheels: tuple[str, ...]
    """As name==version."""


class WheelsFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """wheels.json."""

    closures: tuple[Closure, ...]
    sizes: dict[Arch, dict[str, Size]]
    """By CPU and name==version."""
