"""The container toolkit: its packages and its own repository.

Its version is left open: whatever is newest comes, and its security updates come later, by the host's own updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.errors import PreflightError
from gpusetup.model.plan import Package
from gpusetup.plan.judge import versions
from gpusetup.plan.recorded import record_of
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.model.record import Arch
    from gpusetup.plan.packages.base import Context, Family

__all__ = ["toolkit_notes", "toolkit_packages", "toolkit_patterns", "toolkit_sources"]

_UPDATE = {"apt": "apt-get install --only-upgrade", "dnf": "dnf upgrade", "zypper": "zypper update"}


def toolkit_sources(context: Context, manager: str) -> tuple[dict[str, Any], ...]:
    """Return its repository, unless the host has it already; beside a mirror or bundle, what that holds counts."""
    settings, toolkit = context.settings, context.repos.container_toolkit
    if not settings.containers or settings.source not in {"nvidia", "distro"}:
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
    source: dict[str, Any] = {
        "name": "nvidia-container-toolkit",
        "kind": manager,
        "uris": [uri],
        "key": {"fingerprints": [key.fingerprint], "url": f"{toolkit.url}/{key.file}"},
    }
    if deb:
        return (source | {"suites": ["/"], "components": [], "architectures": []},)
    # Its lists are signed, its packages are not: as in the file that NVIDIA publishes for it.
    return (source | {"description": "NVIDIA container toolkit", "gpgcheck": False, "repo_gpgcheck": True},)


def _gpusetups(context: Context, file: str, name: str) -> bool:
    return name in file and file in record_of(context.facts).files


def toolkit_patterns(context: Context) -> tuple[str, ...]:
    """Return the names to look for."""
    return context.repos.container_toolkit.packages if context.settings.containers else ()


def toolkit_packages(context: Context) -> tuple[Package, ...]:
    """Return its packages; a host whose repositories lack them is refused before anything is touched."""
    if not context.settings.containers:
        return ()
    names = context.repos.container_toolkit.packages
    there = context.facts.packages.installed
    lacking = [name for name in names if name not in there and not context.offers.has(name)]
    if context.offers.known and lacking:
        raise PreflightError(
            "GS-336",
            f"gpusetup_containers needs the container toolkit, and no repository here has {', '.join(lacking)}",
            note="a mirror or bundle must contain it or its repository",
            hint="add a mirror of it to gpusetup_extra_sources, or unset gpusetup_containers",
        )
    return tuple(Package(name=name) for name in names)


def toolkit_notes(context: Context, family: Family) -> Iterator[str]:
    """Yield what a person should hear: a toolkit that is too old, a runtime that is not there yet."""
    toolkit, facts = context.repos.container_toolkit, context.facts
    if not context.settings.containers:
        return
    installed = facts.packages.installed.get(toolkit.packages[0])
    if installed and nv(versions.upstream(installed) or "0") < nv(toolkit.version):
        update = _UPDATE[family.manager]
        yield f"container toolkit {installed} is older than {toolkit.version}: {update} {' '.join(toolkit.packages)}"
    for name in context.settings.containers:
        if name not in facts.containers.runtimes:
            yield f"{name} is not installed here; gpusetup configures container runtimes, it does not install them"
