"""Every variable passed to a play, with its type; each role's README.md explains them.

The role's default or the inventory decides what is not set.
"""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from gpusetup.model.applied import Applied, Verified
from gpusetup.model.package import CudaRoot, Manager, Package, Pin, Source, Stream
from gpusetup.model.settings import (
    DriverOptions,
    MigLayout,
    RdmaStack,
    RebootPolicy,
    RestartPolicy,
    RoleEnvironment,
    VgpuFeature,
)
from gpusetup.model.verdict import Level

Texts = tuple[str, ...]
Packages = tuple[Package, ...]


class Owner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run that changes a host: its user, and the other active runs of the same home."""

    controller: str
    user: str
    run: str
    home: str
    alive: tuple[str, ...]
    turns: int
    """The number of turns in which the run reaches all its hosts: with few forks, each waits long between two."""


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host's part in a measurement over several hosts: the meeting address, and its GPUs' ranks in the world."""

    address: str
    port: int
    number: int
    hosts: int
    local: int
    first: int
    world: int
    sizes: tuple[int, ...]


class RoleVariables(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The variables of one host's plays."""

    gpu_package_manager: Manager | UnsetType = UNSET

    gpu_repo_sources: tuple[Source, ...] | UnsetType = UNSET
    gpu_repo_enable: Texts | UnsetType = UNSET
    gpu_repo_replace: Texts | UnsetType = UNSET
    gpu_repo_pins: tuple[Pin, ...] | UnsetType = UNSET

    gpu_packages_streams: tuple[Stream, ...] | UnsetType = UNSET
    gpu_packages_prerequisites: Packages | UnsetType = UNSET
    gpu_packages_remove: Texts | UnsetType = UNSET
    gpu_packages_may_remove: Texts | UnsetType = UNSET
    gpu_packages_hold: Texts | UnsetType = UNSET
    gpu_packages_no_way_back: bool | UnsetType = UNSET
    gpu_packages_fetched: str | UnsetType = UNSET

    gpu_preflight_enabled: bool | UnsetType = UNSET
    gpu_preflight_candidates: Texts | UnsetType = UNSET
    gpu_preflight_fetched: str | UnsetType = UNSET
    gpu_preflight_space_mb: dict[str, int] | UnsetType = UNSET
    gpu_preflight_keep: bool | UnsetType = UNSET
    gpu_preflight_older: bool | UnsetType = UNSET

    gpu_nouveau_blacklist: bool | UnsetType = UNSET

    gpu_driver_packages: Packages | UnsetType = UNSET
    gpu_driver_version: str | UnsetType = UNSET
    gpu_driver_module: Literal["", "open", "proprietary"] | UnsetType = UNSET
    gpu_driver_options: DriverOptions | UnsetType = UNSET
    gpu_driver_reload: bool | UnsetType = UNSET
    gpu_driver_runfile: str | UnsetType = UNSET
    gpu_driver_runfile_sha256: str | UnsetType = UNSET
    gpu_driver_replace_runfile: bool | UnsetType = UNSET
    gpu_driver_enroll_key: bool | UnsetType = UNSET
    gpu_driver_signing_key: str | UnsetType = UNSET
    gpu_driver_signing_certificate: str | UnsetType = UNSET

    gpu_fabric_packages: Packages | UnsetType = UNSET
    gpu_fabric_services: Texts | UnsetType = UNSET
    gpu_persistence_services: Texts | UnsetType = UNSET
    gpu_persistence_give_up: bool | UnsetType = UNSET

    gpu_cuda_packages: Packages | UnsetType = UNSET
    gpu_cuda_roots: tuple[CudaRoot, ...] | UnsetType = UNSET
    gpu_cuda_default: str | UnsetType = UNSET

    gpu_python_requirements: Texts | UnsetType = UNSET
    gpu_python_path: str | UnsetType = UNSET
    gpu_python_find_links: str | UnsetType = UNSET
    gpu_python_signers: Texts | UnsetType = UNSET
    gpu_python_interpreter: str | UnsetType = UNSET
    gpu_python_adopt: str | UnsetType = UNSET
    gpu_python_environments: tuple[RoleEnvironment, ...] | UnsetType = UNSET

    gpu_container_packages: Packages | UnsetType = UNSET
    gpu_container_runtimes: Texts | UnsetType = UNSET
    gpu_container_give_up: bool | UnsetType = UNSET
    gpu_container_restart: RestartPolicy | UnsetType = UNSET

    gpu_imex_nodes: Texts | UnsetType = UNSET
    gpu_imex_channels: int | UnsetType = UNSET

    gpu_desktop_packages: Packages | UnsetType = UNSET
    gpu_desktop_users: Texts | UnsetType = UNSET
    gpu_desktop_size: str | UnsetType = UNSET
    gpu_desktop_session: str | UnsetType = UNSET
    gpu_desktop_listen: str | UnsetType = UNSET
    gpu_desktop_port: int | UnsetType = UNSET
    gpu_desktop_certificate: str | UnsetType = UNSET
    gpu_desktop_key: str | UnsetType = UNSET
    gpu_desktop_group: str | UnsetType = UNSET
    gpu_desktop_backend: Literal["", "none", "egl", "x"] | UnsetType = UNSET
    gpu_desktop_gpus: Texts | UnsetType = UNSET

    gpu_mig_layouts: tuple[MigLayout, ...] | UnsetType = UNSET
    gpu_mig_gpus: Texts | UnsetType = UNSET
    gpu_licence_token: str | UnsetType = UNSET
    gpu_licence_feature: VgpuFeature | UnsetType = UNSET
    gpu_licence_give_up: bool | UnsetType = UNSET
    gpu_rdma_packages: Packages | UnsetType = UNSET
    gpu_rdma_stack: RdmaStack | UnsetType = UNSET
    gpu_rdma_modules: Texts | UnsetType = UNSET
    gpu_rdma_p2pdma: bool | UnsetType = UNSET
    gpu_monitoring_packages: Packages | UnsetType = UNSET
    gpu_monitoring_exporter: Literal["", "none", "dcgm", "nvidia_gpu_exporter", "textfile"] | UnsetType = UNSET
    gpu_monitoring_listen: str | UnsetType = UNSET
    gpu_monitoring_folder: str | UnsetType = UNSET
    gpu_monitoring_dcgm: str | UnsetType = UNSET
    gpu_monitoring_certificate: str | UnsetType = UNSET
    gpu_monitoring_key: str | UnsetType = UNSET
    gpu_monitoring_passwords: str | UnsetType = UNSET

    gpu_recover_gpus: Texts | UnsetType = UNSET
    gpu_recover_reboot: bool | UnsetType = UNSET
    gpu_recover_why: Texts | UnsetType = UNSET

    gpu_reboot_policy: RebootPolicy | UnsetType = UNSET
    gpu_reboot_local: bool | UnsetType = UNSET

    gpu_state_id: str | UnsetType = UNSET
    gpu_state_owner: Owner | UnsetType = UNSET
    gpu_state_planned: Texts | UnsetType = UNSET
    gpu_state_lock: Applied | UnsetType = UNSET
    gpu_state_verified: Verified | UnsetType = UNSET

    gpu_verify_level: Level | UnsetType = UNSET
    gpu_verify_python: str | UnsetType = UNSET
    gpu_verify_cuda_home: str | UnsetType = UNSET
    gpu_verify_gpus: tuple[int, ...] | UnsetType = UNSET
    gpu_verify_minutes: float | UnsetType = UNSET
    gpu_verify_when_idle: bool | UnsetType = UNSET
    gpu_verify_budget: float | UnsetType = UNSET
    gpu_verify_components: Texts | UnsetType = UNSET
    gpu_verify_fail: bool | UnsetType = UNSET
    gpu_verify_token: str | UnsetType = UNSET

    gpu_busy_retries: int | UnsetType = UNSET
    gpu_busy_delay: int | UnsetType = UNSET
    gpu_verify_plans: dict[str, Part] | UnsetType = UNSET
    gpusetup_verify_group: Texts | UnsetType = UNSET
    gpusetup_candidates: bool | UnsetType = UNSET
    gpusetup_record: bool | UnsetType = UNSET
    gpusetup_symptoms: bool | UnsetType = UNSET


NOTHING = RoleVariables()
