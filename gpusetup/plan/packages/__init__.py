"""Package names: data of repos.json, read one way per packager; what cannot be data is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpusetup.model.package import UNPROVEN, Origins
from gpusetup.plan.given import given
from gpusetup.plan.packages.absent import absence
from gpusetup.plan.packages.base import repository_at
from gpusetup.plan.packages.containers import toolkit_sources
from gpusetup.plan.packages.debian_archive import DebianArchive, last_seen
from gpusetup.plan.packages.nvidia import NvidiaRepository
from gpusetup.plan.packages.runfile import RunfileInstaller
from gpusetup.plan.packages.ubuntu_archive import UbuntuArchive

if TYPE_CHECKING:
    from gpusetup.model.facts import OperatingSystem
    from gpusetup.model.package import Manager
    from gpusetup.model.repos import RepoDirectory, ReposFile
    from gpusetup.plan.packages.base import Context, Family

__all__ = ["absence", "all_sources", "family_for", "last_seen"]


def family_for(
    repos: ReposFile, system: OperatingSystem, source: str, directory: RepoDirectory | None
) -> Family | None:
    """Return how packages are named here; None where there is nothing that we can install."""
    file = given(source)
    if file is not None and file.kind == "runfile":
        return RunfileInstaller(file, manager_of(system))
    if source == "distro":
        if not any(system.label in row.systems for row in repos.distro_drivers):
            return None
        return UbuntuArchive() if system.id == "ubuntu" else DebianArchive()
    if directory is None:
        return None
    return NvidiaRepository(directory)


def manager_of(system: OperatingSystem) -> Manager:
    """Return the package manager of a family of distributions."""
    managers: dict[str, Manager] = {"debian": "apt", "suse": "zypper"}
    return managers.get(system.family, "dnf")


def all_sources(context: Context, family: Family) -> Origins:
    """Return where packages come from: the family's repositories, the container toolkit's, those that the site adds."""
    origins = family.sources(context)
    extra = (
        repository_at(source.name, family.manager, source.uris or (), source.key or UNPROVEN)
        for source in context.settings.extra_sources
    )
    toolkit = toolkit_sources(context, family.manager)
    return replace(origins, sources=(*origins.sources, *toolkit, *extra))
