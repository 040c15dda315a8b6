"""The container toolkit: its packages, its own repository and the container runtimes that use it.

The matrix has the oldest version that the roles work with; older offers are refused. No version is pinned: the newest
is installed, and the host's own updates bring security fixes.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, get_args

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.base import Brought, Component, Context, Group, Wanted, action, repository_at
from gpusetup.components.judge import Judged, versions
from gpusetup.components.parsing import choice, file_source, texts, wrong
from gpusetup.components.record import record_of
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import HostFacts
from gpusetup.model.package import Key, Manager, Package, Source
from gpusetup.model.plan import Action
from gpusetup.model.record import Arch
from gpusetup.model.settings import RestartPolicy, Settings
from gpusetup.model.stack import Stack
from gpusetup.versions import nv

_RUNTIMES = ("docker", "containerd", "crio", "podman")

_UPDATE = {"apt": "apt-get install --only-upgrade", "dnf": "dnf upgrade", "zypper": "zypper update"}


def toolkit_sources(context: Context, manager: Manager) -> tuple[Source, ...]:
    """Return its repository; none if the host has it already, or the source is a mirror or bundle."""
    settings, toolkit = context.settings, context.repos.container_toolkit
    elsewhere = settings.source not in {"nvidia", "distro"} and file_source(settings.source) is None
    if not settings.containers or elsewhere:
        return ()
    cpu: Arch = "x86_64" if context.facts.arch == "x86_64" else "aarch64"
    deb = manager == "apt"
    path = toolkit.deb_path if deb else toolkit.rpm_path
    uri = f"{toolkit.url}/{path.format(deb_arch=context.repos.repository.deb_arches[cpu], arch=cpu)}"
    common = uri.rpartition("/")[0]
    ours = "/nvidia-container-toolkit."  # an entry of an earlier apply does not count: it is still wanted
    record = record_of(context.facts).files
    here = (item for item in context.facts.packages.sources if ours not in item.file or item.file not in record)
    if any(source.uri.startswith(common) for source in here):
        return ()
    key = next(key for key in context.repos.keys if key.id == toolkit.key)
    vouches = Key(fingerprints=(key.fingerprint,), url=f"{toolkit.url}/{key.file}")
    source = repository_at("nvidia-container-toolkit", manager, (uri,), vouches)
    if not deb:
        # As in NVIDIA's own file for it: the lists are signed, the packages are not.
        source = replace(source, description="NVIDIA container toolkit", gpgcheck=False, repo_gpgcheck=True)
    return (source,)


def _runtimes(value: Any, label: str) -> tuple[str, ...]:
    names = texts(value, label)
    for name in names:
        if name not in _RUNTIMES:
            raise wrong(label, name, "some of: " + ", ".join(_RUNTIMES))
    return names


def _patterns(context: Context, _matrix: Matrix) -> tuple[str, ...]:
    """Return the package names to search for."""
    return context.repos.container_toolkit.packages if context.settings.containers else ()


def _wants(context: Context, _manager: Manager, _stack: Stack, _matrix: Matrix) -> Brought:
    """Return its packages; raise if a runtime is missing, or the repositories lack them or only have old ones."""
    if not context.settings.containers:
        return Brought()
    toolkit, there = context.repos.container_toolkit, context.facts.packages.installed
    names = toolkit.packages
    absent = [name for name in context.settings.containers if name not in context.facts.containers.runtimes]
    if context.offers.known and absent:
        others = ",".join(name for name in context.settings.containers if name not in absent) or "'[]'"
        raise PreflightError(
            "GS-339",
            f"gpusetup_containers names {', '.join(absent)}, which is not installed here",
            note="gpusetup configures container runtimes, it does not install them",
            hint=f"install it first, or remove it: gpusetup_containers={others}",
        )
    lacking = [name for name in names if name not in there and not context.offers.has(name)]
    if context.offers.known and lacking:
        raise PreflightError(
            "GS-336",
            f"gpusetup_containers needs the container toolkit, and no repository of this host has {', '.join(lacking)}",
            note="a mirror or bundle must contain it or its repository",
        )
    newest = (context.offers.upstreams(names[0]) or [""])[0]
    if names[0] not in there and newest and nv(newest) < nv(toolkit.version):
        raise PreflightError(
            "GS-336",
            f"gpusetup_containers needs container toolkit {toolkit.version}, and the newest one here is {newest}",
            note="older versions write settings to files that some runtimes do not read",
        )
    return Brought(packages=tuple(Package(name=name) for name in names))


def _notes(context: Context, wanted: Wanted) -> Iterator[str]:
    """Yield a warning if the installed toolkit is too old or a mix of versions."""
    toolkit, there = context.repos.container_toolkit, context.facts.packages.installed
    if not context.settings.containers or wanted.packages is None:
        return
    update = f"{_UPDATE[wanted.packages.manager]} {' '.join(toolkit.packages)}"
    found = sorted({there[name] for name in toolkit.packages if name in there})
    if len(found) > 1:
        yield f"the container toolkit's packages have different versions ({', '.join(found)}): {update}"
    elif found and nv(versions.upstream(found[0]) or "0") < nv(toolkit.version):
        yield f"container toolkit {found[0]} is older than {toolkit.version}: {update}"


def _unwanted_runtimes(facts: HostFacts, settings: Settings) -> tuple[str, ...]:
    """Return the runtimes that an earlier apply configured and that are no longer asked for."""
    record, asked = record_of(facts), settings.containers
    ours = [name for name, paths in judge.containers.SETTINGS.items() if any(path in record.files for path in paths)]
    if not asked and not ours and not record.services.keys().isdisjoint(judge.names.CDI_UNITS):
        ours = ["podman"]  # it has no settings of its own, only units that describe the GPUs
    return tuple(name for name in ours if name not in asked)


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    facts, asked = host.facts, wanted.settings.containers
    gone = _unwanted_runtimes(facts, wanted.settings)
    if gone:
        why = "gpusetup_containers no longer names them"
        yield action("container", "given-up", f"settings of {', '.join(gone)} as before", why)
    lacking = [name for name in asked if name not in facts.containers.configured]
    if lacking:
        yield action("container", "runtimes", ", ".join(lacking), "these runtimes are not configured for the GPU yet")
    if asked and judge.drift.described_otherwise(host.probed):
        was = ", ".join(facts.containers.cdi_drivers)
        why = f"it describes driver {was}, but another one is loaded: containers would not start"
        yield action("container", "cdi", "describe the GPUs to container runtimes again (CDI)", why)


def _variables(facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    settings = wanted.settings
    return {
        "gpu_container_runtimes": settings.containers,
        "gpu_container_give_up": bool(_unwanted_runtimes(facts, settings)) or UNSET,
        "gpu_container_restart": settings.containers_restart if settings.containers else UNSET,
    }


CONTAINERS = Component(
    name="containers",
    settings={"containers": _runtimes, "containers_restart": choice(*get_args(RestartPolicy))},
    packages={"containers": Group("containers need it to use the GPU", "gpu_container_packages")},
    asks=attrgetter("containers"),
    patterns=_patterns,
    wants=_wants,
    notes=_notes,
    actions=_actions,
    variables=_variables,
)
