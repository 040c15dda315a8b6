"""Fabric manager and what goes with it on machines with NVSwitches, and what moves with the driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.components.base import covering, glob, named
from gpusetup.components.imex import imex_of
from gpusetup.components.judge import versions
from gpusetup.model.package import Package

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.components.base import Context
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.repos import FabricPackages, Format, ReposFile
    from gpusetup.model.stack import DriverChoice


def held(repos: ReposFile, source: str, family: str) -> tuple[str, ...]:
    """Return globs of everything that moves with the driver."""
    return next(row.names for row in repos.stack_names if row.source == source and family in row.families)


def fabric_of(
    context: Context, choice: DriverChoice, form: Format, *, manager_only: bool = False
) -> tuple[Package, ...]:
    """Return fabric manager and what goes with it, where this machine runs NVSwitches.

    All are of exactly the driver's version. Of IMEX and NVSDM what is installed moves along.
    """
    switches = context.facts.nvswitch
    imex = imex_of(context, choice, form)
    if switches is None:
        return imex
    row = _fabric_row(context, choice, form)
    names = [row.fabric_manager] if manager_only else [row.fabric_manager, row.nscq]
    names += companions(context.facts, [row.nvsdm] if imex else [row.imex, row.nvsdm])
    packages = [context.offers.exact(named(name, branch=choice.branch), choice.version) for name in names]
    if switches.kind == "nvlink5":
        packages += [Package(name=name) for name in row.nvlink5]
    return (*packages, *imex)


def _fabric_row(context: Context, choice: DriverChoice, form: Format) -> FabricPackages:
    """Return the row of the branch; where an archive names it the older way still, the row with that name."""
    rows = [row for row in context.repos.fabric if row.format == form]
    ours = next(covering(rows, int(choice.branch)))

    def offered(row: FabricPackages) -> bool:
        return context.offers.has(named(row.fabric_manager, branch=choice.branch), choice.version)

    return next((row for row in (ours, *rows) if offered(row)), ours)


def fabric_globs(context: Context, form: Format) -> tuple[str, ...]:
    """Return every name of the fabric's packages: of another branch they conflict with nothing, and would stay."""
    rows = [row for row in context.repos.fabric if row.format == form]
    if context.facts.nvswitch is None:
        names = [row.imex for row in rows] if context.settings.imex is not None else []
    else:
        names = [name for row in rows for name in (row.fabric_manager, row.nscq, row.imex, row.nvsdm) if name]
    return tuple(dict.fromkeys(glob(name, "[0-9]*") for name in names))


def companions(facts: HostFacts, templates: Iterable[str]) -> list[str]:
    """Return those of which some branch is installed: they would break, or keep back, what they belong to."""
    found = []
    for template in filter(None, templates):
        patterns = [glob(template, "[0-9]*"), re.sub(r"-?\{\w+\}", "", template)]
        if any(versions.matches(name, patterns) for name in facts.packages.installed):
            found.append(template)
    return found
