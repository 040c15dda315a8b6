"""Turns the wanted state into role variables, which each role's README.md lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.components.registry import COMPONENTS, GROUPS
from gpusetup.model.variables import RoleVariables

if TYPE_CHECKING:
    from gpusetup.components.base import Wanted
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.package import Origins, PackageSet


def for_manager(facts: HostFacts) -> RoleVariables:
    """Return the variables for every play on a host: its package manager."""
    return RoleVariables(gpu_package_manager=facts.packages.manager or "apt")


def role_variables(facts: HostFacts, wanted: Wanted) -> RoleVariables:
    """Return all role variables of one host."""
    told = {name: value for item in COMPONENTS for name, value in item.variables(facts, wanted).items()}
    variables = for_manager(facts) if wanted.packages is None else _package_variables(wanted.packages)
    return replace(variables, gpu_packages_no_way_back=wanted.settings.no_way_back or UNSET, **told)


def question_variables(facts: HostFacts, origins: Origins, patterns: tuple[str, ...]) -> RoleVariables:
    """Return the variables of a preview that only reads the offers of the wanted repositories."""
    return replace(
        for_manager(facts),
        gpu_repo_sources=origins.sources,
        gpu_repo_enable=origins.enable,
        gpu_repo_replace=origins.replace,
        gpu_preflight_candidates=patterns,
    )


def _package_variables(packages: PackageSet) -> RoleVariables:
    return RoleVariables(
        gpu_package_manager=packages.manager,
        gpu_repo_sources=packages.sources,
        gpu_repo_enable=packages.enable,
        gpu_repo_replace=packages.replace,
        gpu_repo_pins=packages.pins,
        gpu_packages_streams=packages.streams,
        gpu_packages_prerequisites=packages.prerequisites + packages.python,
        gpu_packages_remove=packages.remove,
        gpu_packages_may_remove=packages.may_remove,
        gpu_packages_hold=packages.hold,
        gpu_cuda_packages=packages.libraries(),
        gpu_cuda_roots=packages.cuda_roots,
        gpu_cuda_default=packages.cuda_default,
        **{group.variable: getattr(packages, name) for name, group in GROUPS.items() if group.variable},
    )
