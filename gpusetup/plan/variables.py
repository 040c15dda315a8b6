"""A plan in the words of the roles: typed variables, as docs/reference/variables.md lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.plan import Package, PackageSet
    from gpusetup.plan.observe import Wanted

__all__ = ["question_variables", "role_variables"]


def role_variables(facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    """Return everything that the roles are told about one host."""
    settings, driver = wanted.settings, wanted.stack.driver
    variables: dict[str, Any] = {}
    if wanted.packages is not None:
        variables |= _package_variables(wanted.packages)
    else:
        variables["gpu_package_manager"] = facts.packages.manager or "apt"
    if driver is not None and wanted.manage_driver:
        variables |= {
            "gpu_nouveau_blacklist": True,
            "gpu_driver_version": driver.version,
            "gpu_driver_module": driver.module,
            "gpu_driver_options": settings.driver_options,
            "gpu_driver_replace_runfile": settings.replace,
            "gpu_driver_enroll_key": settings.secure_boot == "enroll" and not wanted.prebuilt,
            "gpu_driver_signing_key": settings.signing_key,
            "gpu_driver_signing_certificate": settings.signing_certificate,
        }
    fabric = [name for name in wanted.services if "fabricmanager" in name]
    variables |= {
        "gpu_fabric_services": fabric,
        "gpu_persistence_services": [name for name in wanted.services if name not in fabric],
        "gpu_container_runtimes": list(settings.containers),
    }
    if wanted.requirements:
        variables |= {
            "gpu_python_requirements": list(wanted.requirements),
            "gpu_python_path": settings.python_path,
            "gpu_python_interpreter": settings.python_interpreter,
            "gpu_python_adopt": settings.python_adopt,
        }
    return variables


def question_variables(facts: HostFacts, sources: dict[str, Any], patterns: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables that only ask what the wanted repositories offer."""
    return {
        "gpu_package_manager": facts.packages.manager or "apt",
        "gpu_repo_sources": list(sources.get("sources", ())),
        "gpu_repo_enable": list(sources.get("enable", ())),
        "gpu_repo_replace": list(sources.get("replace", ())),
        "gpu_preflight_candidates": list(patterns),
    }


def _package_variables(packages: PackageSet) -> dict[str, Any]:
    def listed(group: tuple[Package, ...]) -> list[dict[str, str]]:
        return [msgspec.to_builtins(package) for package in group]

    return {
        "gpu_package_manager": packages.manager,
        "gpu_repo_sources": list(packages.sources),
        "gpu_repo_enable": list(packages.enable),
        "gpu_repo_replace": list(packages.replace),
        "gpu_repo_pins": list(packages.pins),
        "gpu_packages_streams": list(packages.streams),
        "gpu_packages_prerequisites": listed(packages.prerequisites),
        "gpu_driver_packages": listed(packages.driver),
        "gpu_fabric_packages": listed(packages.fabric),
        "gpu_cuda_packages": listed(packages.cuda + packages.cudnn + packages.nccl),
        "gpu_container_packages": listed(packages.containers),
        "gpu_packages_remove": list(packages.remove),
        "gpu_packages_may_remove": list(packages.may_remove),
        "gpu_packages_hold": list(packages.hold),
        "gpu_cuda_roots": list(packages.cuda_roots),
        "gpu_cuda_default": packages.cuda_default,
    }
