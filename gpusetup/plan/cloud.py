"""A cloud's guest driver as the source: which of its files fits this guest, and where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpusetup.errors import PreflightError
from gpusetup.matrix.vgpu import files_of, fitting
from gpusetup.plan.given import given
from gpusetup.plan.requests import working_driver
from gpusetup.resolve.domains import matches
from gpusetup.versions import nv

if TYPE_CHECKING:
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.platforms import CloudFile, VgpuCloud
    from gpusetup.model.request import Requirement
    from gpusetup.model.settings import Settings

__all__ = ["with_cloud_driver"]


def with_cloud_driver(facts: HostFacts, settings: Settings, matrix: Matrix) -> Settings:
    """Return the wishes with the address of the cloud's guest driver in place of the cloud's name.

    A guest driver that works stays, as everywhere: then it needs no source.
    """
    cloud = next((item for item in matrix.vgpu.clouds if item.cloud == settings.source), None)
    if cloud is None:
        return settings
    wish = next((item for item in settings.requirements if item.component == "driver"), None)
    files = {_version(file): file for file in reversed(files_of(cloud, matrix))}
    there = None if settings.upgrade else working_driver(facts)
    if there is not None and (wish is None or matches(wish, [there])):
        kept = files.get(there)
        return replace(settings, source=kept.url if kept else "distro")
    if cloud.installed_by:
        raise PreflightError(
            "GS-356",
            f"{cloud.name} gives its guest driver away as no file",
            note=f"it is installed by {cloud.installed_by}",
            hint="install it that way first; gpusetup keeps it, and brings what fits it",
        )
    file = _chosen(cloud, files, wish, settings.vgpu_host, matrix)
    return replace(settings, source=file.url, source_sha256=settings.source_sha256 or file.sha256)


def _chosen(
    cloud: VgpuCloud, files: dict[str, CloudFile], wish: Requirement | None, host: str, matrix: Matrix
) -> CloudFile:
    """Return the newest that was asked for and that the host takes; where nothing says, what the cloud installs."""
    takes = fitting(host.partition(".")[0], matrix) if host else None
    fit = [file for file in files.values() if takes is None or file.vgpu.partition(".")[0] in takes]
    asked = wish is not None and bool(wish.specifier or wish.latest)
    if wish is not None:
        wanted = set(matches(wish, [_version(file) for file in fit]))
        fit = [file for file in fit if _version(file) in wanted]
    if not fit:
        raise PreflightError(
            "GS-356",
            f"{cloud.name} is not known to offer a guest driver that was asked for"
            + (f" and that a host of vGPU {host} takes" if host else ""),
            note="known: " + ", ".join(f"{version} (vGPU {file.vgpu})" for version, file in reversed(files.items())),
            hint="ask for one of them, or name a newer one by its address: gpusetup_source=https://….run",
        )
    if not asked and takes is None and cloud.default is not None:
        fit = [file for file in fit if file.vgpu == cloud.default] or fit
    return max(fit, key=lambda file: nv(file.vgpu))


def _version(file: CloudFile) -> str:
    found = given(file.url)
    return found.version if found is not None else ""
