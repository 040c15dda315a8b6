"""What exports a host's figures: chosen by its GPUs, with the packages that belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpusetup.components.base import glob, named
from gpusetup.components.judge import versions
from gpusetup.components.record import record_of
from gpusetup.errors import PreflightError
from gpusetup.matrix.gpus import gpu_by_id
from gpusetup.model.monitoring import Exporter
from gpusetup.model.package import Package, PackageSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.components.base import Context
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.monitoring import DcgmPair, ExporterKind, ExporterPackages
    from gpusetup.model.package import Manager
    from gpusetup.model.settings import Settings
    from gpusetup.model.stack import Stack

__all__ = ["Monitoring", "monitoring_of", "monitoring_patterns", "wants_packages", "without_leftovers"]

_PORTS = {"dcgm": 9400, "nvidia_gpu_exporter": 9835, "textfile": 9100}
_LOOPBACK = ("127.", "[::1]:", "localhost:")
_FOLDER = "/var/lib/node_exporter/textfile_collector"
"""For a node_exporter of ours that reads no folder by itself."""
_ASKED = "gpusetup_monitoring asks for it"
_MANY = {"apt": "apt-get remove", "dnf": "dnf remove", "zypper": "zypper remove"}


class Monitoring(NamedTuple):
    """What exports the figures, and the packages of it."""

    exporter: Exporter | None = None
    packages: tuple[Package, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def held(self) -> tuple[str, ...]:
        """Packages that move together or not at all."""
        return tuple(package.name for package in self.packages if package.version)


def wants_packages(settings: Settings) -> bool:
    """Tell whether a repository must be asked."""
    return settings.monitoring != "none" and not (settings.monitoring == "textfile" and settings.monitoring_textfile)


def monitoring_patterns(context: Context, matrix: Matrix) -> tuple[str, ...]:
    """Return the names to look for."""
    if not wants_packages(context.settings):
        return ()
    table = matrix.monitoring
    names = (*table.dcgm.needed, *table.dcgm.optional, table.dcgm.exporter)
    return (*map(glob, names), *(name for row in table.exporters for name in row.packages))


def monitoring_of(context: Context, manager: Manager, stack: Stack, matrix: Matrix) -> Monitoring:
    """Return what exports the figures here; what cannot be is refused before anything is touched."""
    settings = context.settings
    if settings.monitoring == "none":
        return Monitoring()
    _refuse_open(settings)
    kind, why = _by_class(context, stack, matrix) if settings.monitoring == "auto" else (settings.monitoring, _ASKED)
    if kind == "dcgm":
        return _dcgm(context, manager, stack, matrix, why)
    row = next((row for row in matrix.monitoring.exporters if row.kind == kind and manager in row.managers), None)
    if kind == "nvidia_gpu_exporter":
        return Monitoring(_exporter(settings, kind, why), (_offered(context, row, kind),))
    return _textfile(context, row, why)


def without_leftovers(facts: HostFacts, packages: PackageSet | None) -> PackageSet | None:
    """Let go what an earlier apply brought to export figures, for RDMA, or for desktops, and nobody asks for now.

    It is no part of what is recorded: what a person installs later under such a name is theirs.
    """
    record = record_of(facts)
    before = record.lock.wanted.packages if record.lock.wanted is not None else None
    kept = {package.name for package in packages.wanted()} if packages is not None else set()
    of_parts = (*before.monitoring, *before.rdma, *before.desktops) if before is not None else ()
    names = {package.name for package in of_parts} & set(record.brought)
    gone = tuple(sorted(names - kept))
    if not gone:
        return packages
    found = packages or PackageSet(manager=facts.packages.manager or "apt")
    return replace(found, remove=(*found.remove, *gone), may_remove=(*found.may_remove, *gone))


def _by_class(context: Context, stack: Stack, matrix: Matrix) -> tuple[ExporterKind, str]:
    """Choose by the GPUs: DCGM is made for data-centre GPUs that are whole."""
    facts = context.facts
    others = {
        gpu.name or gpu.pci_id
        for gpu in facts.gpus
        if {product.kind for product in gpu_by_id(matrix, gpu.pci_id, gpu.subsystem)} != {"datacenter"}
    }
    if facts.vgpu_guest:
        return "textfile", "a vGPU lacks what DCGM reads of a whole GPU"
    if others:
        return "textfile", f"DCGM is made for data-centre GPUs, and {', '.join(sorted(others))} is none"
    older = matrix.monitoring.dcgm.older in facts.packages.installed
    if not older and context.offers.known and _pair(context, _cuda_major(context, stack, matrix), matrix) is None:
        return "textfile", "no repository here has a DCGM with its exporter"
    return "dcgm", "data-centre GPUs: DCGM tells most of their health"


# --- DCGM ----------------------------------------------------------------------------------------------------------


def _dcgm(context: Context, manager: Manager, stack: Stack, matrix: Matrix, why: str) -> Monitoring:
    names, installed = matrix.monitoring.dcgm, context.facts.packages.installed
    if names.older in installed:
        raise PreflightError(
            "GS-366",
            f"{names.older} {installed[names.older]} is installed: DCGM 3 and older, beside which DCGM 4 cannot be",
            note="both bring nv-hostengine; programs that were built for DCGM 3 need their own new version",
            hint=f"remove it on the host, then run this command again: {_MANY[manager]} {names.older}; "
            "or keep it and use gpusetup_monitoring=textfile",
        )
    major = _cuda_major(context, stack, matrix)
    pair = _pair(context, major, matrix)
    if pair is None:
        offered = ", ".join(context.offers.upstreams(names.needed[0])[:4]) or "none"
        exporters = ", ".join(context.offers.upstreams(names.exporter)[:4]) or "none"
        raise PreflightError(
            "GS-361",
            "no repository here has a DCGM with the exporter that was made with it",
            note=f"DCGM: {offered}; exporter: {exporters}; pairs that are known: "
            + ", ".join(f"{row.dcgm}-{row.exporter}" for row in matrix.monitoring.pairs[:4]),
            hint="add NVIDIA's CUDA repository or a mirror of it (gpusetup_extra_sources), renew the bundle, "
            "or use gpusetup_monitoring=textfile",
        )
    packages = [context.offers.exact(name, pair.dcgm) for name in _filled(names.needed, major)]
    packages += [
        context.offers.exact(name, pair.dcgm)
        for name in _filled(names.optional, major)
        if not context.offers.known or context.offers.has(name, pair.dcgm)
    ]
    packages.append(context.offers.exact(names.exporter, pair.exporter))
    exporter = replace(_exporter(context.settings, "dcgm", why), dcgm=pair.dcgm)
    return Monitoring(exporter, tuple(packages))


def _pair(context: Context, major: int, matrix: Matrix) -> DcgmPair | None:
    """Return the pair that is there already, else the newest of which everything is offered."""
    names, there = matrix.monitoring.dcgm, context.facts.packages.installed
    needed = list(_filled(names.needed, major))

    def installed(pair: DcgmPair) -> bool:
        wanted = [*((name, pair.dcgm) for name in needed), (names.exporter, pair.exporter)]
        return all(versions.upstream(there.get(name, "")) == version for name, version in wanted)

    def offered(pair: DcgmPair) -> bool:
        offers = context.offers
        return not offers.known or (
            all(offers.has(name, pair.dcgm) for name in needed) and offers.has(names.exporter, pair.exporter)
        )

    pairs = matrix.monitoring.pairs
    kept = () if context.settings.upgrade else (pair for pair in pairs if installed(pair))
    return next(iter((*kept, *(pair for pair in pairs if offered(pair)))), None)


def _filled(names: tuple[str, ...], major: int) -> Iterator[str]:
    return (named(name, major=str(major)) for name in names)


def _cuda_major(context: Context, stack: Stack, matrix: Matrix) -> int:
    """Return for which CUDA the diagnostics are: that of the driver, and of the oldest GPU."""
    facts = context.facts
    version = stack.driver.version if stack.driver is not None else facts.driver.version if facts.driver else None
    if not version:
        raise PreflightError(
            "GS-363",
            "gpusetup_monitoring needs a driver, and this host has none and asks for none",
            hint="add driver to gpusetup_components, or install one first",
        )
    branch, architectures = int(version.partition(".")[0]), {gpu.arch for gpu in facts.gpus}
    return next(
        row.major
        for row in matrix.monitoring.cuda
        if branch >= row.min_branch and (not row.architectures or architectures & set(row.architectures))
    )


# --- others --------------------------------------------------------------------------------------------------------


def _offered(context: Context, row: ExporterPackages | None, kind: str) -> Package:
    there = context.facts.packages.installed
    for name in row.packages if row is not None else ():
        if name in there or context.offers.has(name) or not context.offers.known:
            return Package(name=name)
    names = " or ".join(row.packages) if row is not None else "such a package"
    raise PreflightError(
        "GS-361",
        f"gpusetup_monitoring={kind} needs {names}, which no repository here has",
        hint=(
            "its project publishes packages and no repository: put them into one of your own (gpusetup_extra_sources), "
            "or use gpusetup_monitoring=textfile"
            if kind != "textfile"
            else "install a node_exporter and say where it reads textfiles: gpusetup_monitoring_textfile=/FOLDER"
        ),
    )


def _textfile(context: Context, row: ExporterPackages | None, why: str) -> Monitoring:
    """A node_exporter that was there before us stays as it is: we add a file to its folder."""
    settings, record = context.settings, record_of(context.facts)
    exporter = _exporter(settings, "textfile", why)
    theirs = replace(exporter, listen="", certificate="", key="", passwords="")
    deaf = ("gpusetup_monitoring_listen",) if settings.monitoring_listen else ()
    note = tuple(f"{name} has no effect: this node_exporter is not gpusetup's" for name in deaf)
    if settings.monitoring_textfile:
        return Monitoring(replace(theirs, folder=settings.monitoring_textfile), notes=note)
    installed = [name for name in (row.packages if row is not None else ()) if name in context.facts.packages.installed]
    if row is not None and installed and installed[0] not in record.brought:
        if not row.folder:
            raise PreflightError(
                "GS-365",
                f"{installed[0]} is installed here already, and where it reads textfiles is not known",
                hint="say it: gpusetup_monitoring_textfile=/FOLDER (its --collector.textfile.directory)",
            )
        return Monitoring(replace(theirs, folder=row.folder), notes=note)
    package = _offered(context, row, "textfile")
    folder = row.folder if row is not None and row.folder else _FOLDER
    return Monitoring(replace(exporter, folder=folder), (package,))


def _exporter(settings: Settings, kind: ExporterKind, why: str) -> Exporter:
    return Exporter(
        kind=kind,
        listen=settings.monitoring_listen or f"127.0.0.1:{_PORTS[kind]}",
        certificate=settings.monitoring_certificate,
        key=settings.monitoring_key,
        passwords=settings.monitoring_passwords,
        why=why,
    )


def _refuse_open(settings: Settings) -> None:
    """Nobody else reads a host's figures without a password, and no password goes over the network in the clear."""
    given = {
        "gpusetup_monitoring_certificate": settings.monitoring_certificate,
        "gpusetup_monitoring_key": settings.monitoring_key,
        "gpusetup_monitoring_passwords": settings.monitoring_passwords,
    }
    lacking = [name for name, path in given.items() if not path]
    listen = settings.monitoring_listen
    if not lacking or (len(lacking) == len(given) and (not listen or listen.startswith(_LOOPBACK))):
        return
    what = f"{listen} can be reached from elsewhere" if listen else "TLS needs a certificate, its key and passwords"
    raise PreflightError(
        "GS-364",
        f"{what}: {', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not set",
        note="each is a path on the host; the passwords are lines as htpasswd -B writes them",
        hint="htpasswd -B -c /etc/gpusetup/monitoring.htpasswd prometheus (on the host, it asks for the password); "
        "or listen on 127.0.0.1",
    )
