"""A plan in the words of the roles: typed variables, as each role's README.md lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.python.environments import for_role
from gpusetup.components.record import desktops_of, exporter_of, record_of, runtimes_given_up
from gpusetup.components.vgpu import licence_given_up
from gpusetup.model.variables import RoleVariables

if TYPE_CHECKING:
    from gpusetup.components.base import Wanted
    from gpusetup.model.desktops import DesktopsWish
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.monitoring import Exporter
    from gpusetup.model.package import Origins, PackageSet
    from gpusetup.model.rdma import GpuDirect

__all__ = ["for_manager", "question_variables", "role_variables"]


def for_manager(facts: HostFacts) -> RoleVariables:
    """Return what every play on a host is told: which package manager it has."""
    return RoleVariables(gpu_package_manager=facts.packages.manager or "apt")


def role_variables(facts: HostFacts, wanted: Wanted) -> RoleVariables:
    """Return everything that the roles are told about one host."""
    settings, driver = wanted.settings, wanted.stack.driver
    runfile = wanted.packages.runfile if wanted.packages is not None else None
    fabric = tuple(name for name in wanted.services if "fabricmanager" in name)
    variables = replace(
        for_manager(facts) if wanted.packages is None else _package_variables(wanted.packages),
        gpu_packages_no_way_back=settings.no_way_back or UNSET,
        gpu_fabric_services=fabric,
        gpu_persistence_services=tuple(name for name in wanted.services if name not in fabric),
        gpu_container_runtimes=settings.containers,
        gpu_container_give_up=bool(runtimes_given_up(facts, settings)) or UNSET,
        gpu_container_restart=settings.containers_restart if settings.containers else UNSET,
        gpu_licence_token=settings.vgpu_token or UNSET,
        gpu_licence_feature=settings.vgpu_feature if settings.vgpu_token else UNSET,
        gpu_licence_give_up=licence_given_up(facts, settings) or UNSET,
        **_monitoring(facts, wanted.monitoring),
        **_desktops(facts, wanted.desktops),
    )
    if driver is not None and wanted.manage_driver:
        variables = replace(
            variables,
            gpu_nouveau_blacklist=True,
            gpu_driver_version=driver.version,
            gpu_driver_module=driver.module,
            gpu_driver_reload=settings.reload == "idle",
            gpu_driver_options=settings.driver_options,
            gpu_driver_replace_runfile=settings.replace or bool(record_of(facts).runfile.version),
            gpu_driver_enroll_key=settings.secure_boot == "enroll" and not wanted.prebuilt,
            gpu_driver_signing_key=settings.signing_key,
            gpu_driver_signing_certificate=settings.signing_certificate,
        )
    variables = _gpudirect(facts, wanted.gpudirect, variables)
    if wanted.imex is not None:
        variables = replace(variables, gpu_imex_nodes=wanted.imex.nodes, gpu_imex_channels=wanted.imex.channels)
    elif judge.names.IMEX_NODES in record_of(facts).files:
        variables = replace(variables, gpu_imex_channels=0)
    if wanted.mig or record_of(facts).mig.found:
        variables = replace(
            variables, gpu_mig_layouts=wanted.mig, gpu_mig_gpus=tuple(gpu.address for gpu in facts.gpus)
        )
    if driver is not None and runfile is not None and wanted.manage_driver:
        variables = replace(
            variables, gpu_driver_runfile=runfile.path, gpu_driver_runfile_sha256=runfile.sha256 or UNSET
        )
    if wanted.environments:
        variables = replace(
            variables,
            gpu_python_environments=for_role(wanted.environments),
            gpu_python_find_links=settings.python_links or UNSET,
        )
    if wanted.requirements:
        variables = replace(
            variables,
            gpu_python_requirements=wanted.requirements,
            gpu_python_path=settings.python_path,
            gpu_python_find_links=settings.python_links or UNSET,
            gpu_python_interpreter=wanted.interpreter,
            gpu_python_adopt=settings.python_adopt,
        )
    return variables


def _gpudirect(facts: HostFacts, setup: GpuDirect | None, variables: RoleVariables) -> RoleVariables:
    """Return the variables with those of RDMA; "none" takes away what an earlier apply set up."""
    if setup is None:
        ours = judge.gpudirect.files("inbox", ["any"], p2pdma=True)
        there = any(path in record_of(facts).files for path in ours)
        return replace(variables, gpu_rdma_stack="none") if there else variables
    return replace(
        variables,
        gpu_rdma_stack=setup.stack,
        gpu_rdma_modules=setup.modules,
        gpu_rdma_p2pdma=setup.storage == "p2pdma",
    )


def _monitoring(facts: HostFacts, exporter: Exporter | None) -> dict[str, Any]:
    """Return what exports the figures; "none" takes away what an earlier apply set up."""
    if exporter is None:
        return {"gpu_monitoring_exporter": "none"} if exporter_of(facts) is not None else {}
    return {
        "gpu_monitoring_exporter": exporter.kind,
        "gpu_monitoring_listen": exporter.listen,
        "gpu_monitoring_folder": exporter.folder,
        "gpu_monitoring_dcgm": exporter.dcgm,
        "gpu_monitoring_certificate": exporter.certificate,
        "gpu_monitoring_key": exporter.key,
        "gpu_monitoring_passwords": exporter.passwords,
    }


def _desktops(facts: HostFacts, wish: DesktopsWish | None) -> dict[str, Any]:
    """Return who gets a desktop; "none" takes away what an earlier apply set up."""
    if wish is None:
        return {"gpu_desktop_backend": "none"} if desktops_of(facts) is not None else {}
    told: dict[str, Any] = {f"gpu_desktop_{name}": getattr(wish, name) for name in wish.__struct_fields__}
    return told | {"gpu_desktop_gpus": tuple(gpu.address for gpu in facts.gpus)}


def question_variables(facts: HostFacts, origins: Origins, patterns: tuple[str, ...]) -> RoleVariables:
    """Return the variables that only ask what the wanted repositories offer."""
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
        gpu_driver_packages=packages.driver,
        gpu_fabric_packages=packages.fabric,
        gpu_cuda_packages=packages.libraries(),
        gpu_container_packages=packages.containers,
        gpu_rdma_packages=packages.rdma,
        gpu_monitoring_packages=packages.monitoring,
        gpu_desktop_packages=packages.desktops,
        gpu_packages_remove=packages.remove,
        gpu_packages_may_remove=packages.may_remove,
        gpu_packages_hold=packages.hold,
        gpu_cuda_roots=packages.cuda_roots,
        gpu_cuda_default=packages.cuda_default,
    )
