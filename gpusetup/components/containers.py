"""The container toolkit: its packages and its own repository.

The matrix says which version is the oldest that does what the roles ask of it; older ones are refused. Above it the
version is left open: whatever is newest comes, and its security updates come later, by the host's own updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpusetup.components.addresses import given
from gpusetup.components.base import repository_at
from gpusetup.components.judge import versions
from gpusetup.components.record import record_of
from gpusetup.errors import PreflightError
from gpusetup.model.package import Key, Package
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.components.base import Context, Family
    from gpusetup.model.package import Manager, Source
    from gpusetup.model.record import Arch

__all__ = ["toolkit_notes", "toolkit_packages", "toolkit_patterns", "toolkit_sources"]

_UPDATE = {"apt": "apt-get install --only-upgrade", "dnf": "dnf upgrade", "zypper": "zypper update"}


def toolkit_sources(context: Context, manager: Manager) -> tuple[Source, ...]:
    """Return its repository, unless the host has it already; beside a mirror or bundle, what that holds counts."""
    settings, toolkit = context.settings, context.repos.container_toolkit
    elsewhere = settings.source not in {"nvidia", "distro"} and given(settings.source) is None
    if not settings.containers or elsewhere:
        return ()
    cpu: Arch = "x86_64" if context.facts.arch == "x86_64" else "aarch64"
    deb = manager == "apt"
    path = toolkit.deb_path if deb else toolkit.rpm_path
    uri = f"{toolkit.url}/{path.format(deb_arch=context.repos.repository.deb_arches[cpu], arch=cpu)}"
    common = uri.rpartition("/")[0]
    ours = "/nvidia-container-toolkit."  # what an earlier apply added is still wanted
    here = (source for source in context.facts.packages.sources if not _gpusetups(context, source.file, ours))
    if any(source.uri.startswith(common) for source in here):
        return ()
    key = next(key for key in context.repos.keys if key.id == toolkit.key)
    vouches = Key(fingerprints=(key.fingerprint,), url=f"{toolkit.url}/{key.file}")
    source = repository_at("nvidia-container-toolkit", manager, (uri,), vouches)
    if not deb:
        # Its lists are signed, its packages are not: as in the file that NVIDIA publishes for it.
        source = replace(source, description="NVIDIA container toolkit", gpgcheck=False, repo_gpgcheck=True)
    return (source,)


def _gpusetups(context: Context, file: str, name: str) -> bool:
    return name in file and file in record_of(context.facts).files


def toolkit_patterns(context: Context) -> tuple[str, ...]:
    """Return the names to look for."""
    return context.repos.container_toolkit.packages if context.settings.containers else ()


def toolkit_packages(context: Context) -> tuple[Package, ...]:
    """Return its packages; a host that lacks a runtime, or whose repositories lack them, is refused untouched."""
    if not context.settings.containers:
        return ()
    toolkit, there = context.repos.container_toolkit, context.facts.packages.installed
    names = toolkit.packages
    absent = [name for name in context.settings.containers if name not in context.facts.containers.runtimes]
    if context.offers.known and absent:
        raise PreflightError(
            "GS-339",
            f"gpusetup_containers names {', '.join(absent)}, which is not installed here",
            note="gpusetup configures container runtimes, it does not install them",
            hint=f"install it first, or take it out: gpusetup_containers={_others(context, absent)}",
        )
    lacking = [name for name in names if name not in there and not context.offers.has(name)]
    if context.offers.known and lacking:
        raise PreflightError(
            "GS-336",
            f"gpusetup_containers needs the container toolkit, and no repository here has {', '.join(lacking)}",
            note="a mirror or bundle must contain it or its repository",
            hint="add a mirror of it to gpusetup_extra_sources, or unset gpusetup_containers",
        )
    newest = (context.offers.upstreams(names[0]) or [""])[0]
    if names[0] not in there and newest and nv(newest) < nv(toolkit.version):
        raise PreflightError(
            "GS-336",
            f"gpusetup_containers needs container toolkit {toolkit.version}, and the newest one here is {newest}",
            note="older ones configure some runtimes at places that these do not read",
            hint="renew the mirror or bundle, or unset gpusetup_containers",
        )
    return tuple(Package(name=name) for name in names)


def _others(context: Context, absent: list[str]) -> str:
    return ",".join(name for name in context.settings.containers if name not in absent) or "'[]'"


def toolkit_notes(context: Context, family: Family) -> Iterator[str]:
    """Yield what a person should hear: a toolkit that is too old, or whose packages are of several versions."""
    toolkit, there = context.repos.container_toolkit, context.facts.packages.installed
    if not context.settings.containers:
        return
    update = f"{_UPDATE[family.manager]} {' '.join(toolkit.packages)}"
    found = sorted({there[name] for name in toolkit.packages if name in there})
    if len(found) > 1:
        yield f"the container toolkit's packages are of several versions, {', '.join(found)}: {update}"
    elif found and nv(versions.upstream(found[0]) or "0") < nv(toolkit.version):
        yield f"container toolkit {found[0]} is older than {toolkit.version}: {update}"
