"""How hosts differ from each other: the document gpusetup/compare/1."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpusetup.model.facts import Failure

Standing = Literal["usual", "outlier", "unknown"]


class Outlier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value that most others do not have."""

    host: str
    subject: str
    """`GPU 3`, `GPU 0 → GPU 1`; empty: the host itself."""
    column: str
    value: str | float
    usual: str | float | None
    """What more than half have, or the median; None: no value has a majority."""
    deviation: float | None = None
    """Of a figure, percent from the median."""
    alike: int
    """So many have the usual value, or are near the median …"""
    compared: int
    """… of so many that were compared."""


class Cell(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a host has in a column; of several GPUs their values, or the one furthest off."""

    text: str
    standing: Standing
    deviation: float | None = None


class Column(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting, or a figure with a unit."""

    id: str
    title: str
    kind: Literal["setting", "figure"]
    unit: str = ""
    usual: str | float | None = None
    cells: dict[str, Cell]


class CompareGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts with the same GPUs, which can be compared."""

    name: str
    hosts: tuple[str, ...]
    columns: tuple[Column, ...]
    outliers: tuple[Outlier, ...]


class Comparison(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of them; `ok`: every host answered."""

    schema: Literal["gpusetup/compare/1"] = "gpusetup/compare/1"
    ok: bool
    groups: tuple[CompareGroup, ...]
    failures: dict[str, Failure] = {}

    @property
    def outliers(self) -> int:
        """How many values stand out."""
        return sum(len(group.outliers) for group in self.groups)
