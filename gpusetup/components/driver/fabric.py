"""Fabric Manager and its companions for machines with NVSwitches; packages that move with the driver."""

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
    """Return globs for all packages that move with the driver."""
    return next(row.names for row in repos.stack_names if row.source == source and family in row.families)


def fabric_of(
    context: Context, choice: DriverChoice, form: Format, *, manager_only: bool = False
) -> tuple[Package, ...]:
    """Return Fabric Manager with companions for a machine with NVSwitches, and IMEX if asked for.

    All have exactly the driver's version. IMEX and NVSDM move along if installed.
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
    """Return the first row, the branch's own before others, whose name the repository offers; else the branch's own."""
    rows = [row for row in context.repos.fabric if row.format == form]
    ours = next(covering(rows, int(choice.branch)))

    def offered(row: FabricPackages) -> bool:
        return context.offers.has(named(row.fabric_manager, branch=choice.branch), choice.version)

    return next((row for row in (ours, *rows) if offered(row)), ours)


def fabric_globs(context: Context, form: Format) -> tuple[str, ...]:
    """Return globs for fabric packages of any branch: no conflict would remove those of another branch."""
    rows = [row for row in context.repos.fabric if row.format == form]
    if context.facts.nvswitch is None:
        names = [row.imex for row in rows] if context.settings.imex is not None else []
    else:
        names = [name for row in rows for name in (row.fabric_manager, row.nscq, row.imex, row.nvsdm) if name]
    return tuple(dict.fromkeys(glob(name, "[0-9]*") for name in names))


def companions(facts: HostFacts, templates: Iterable[str]) -> list[str]:
    """Return the templates of which any branch is installed: left behind, they would break or block the driver."""
    found = []
    for template in filter(None, templates):
        patterns = [glob(template, "[0-9]*"), re.sub(r"-?\{\w+\}", "", template)]
        if any(versions.matches(name, patterns) for name in facts.packages.installed):
            found.append(template)
    return found
