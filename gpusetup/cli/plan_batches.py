"""In which batches a plan would be carried out, for people: equal ones that follow each other are told together."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from gpusetup.drive.causes import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusetup.model.plan import Plan

__all__ = ["Row", "rows_of"]


class Row(NamedTuple):
    """One batch, or several of one size."""

    which: str
    """batch 1, batches 4 to 9."""
    names: list[str]
    size: str
    """1 host; 50 hosts each."""
    reboots: int
    domains: list[str]
    """What the inventory says that these hosts share with others that fail with them."""


def rows_of(plan: Plan, domains: Mapping[str, str]) -> list[Row]:
    """Return the batches in their order."""
    rows = []
    for size, group in groupby(enumerate(plan.batches, 1), lambda item: len(item[1])):
        numbered = list(group)
        (first, _), (last, _) = numbered[0], numbered[-1]
        names = [name for _, batch in numbered for name in batch]
        rows.append(
            Row(
                which=f"batch {first}" if first == last else f"batches {first} to {last}",
                names=names,
                size=counted(size, "host") + ("" if first == last else " each"),
                reboots=sum(1 for name in names if plan.hosts[name].reboot),
                domains=sorted({domains[name] for name in names if name in domains}),
            )
        )
    return rows
