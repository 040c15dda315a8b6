"""The exporter of GPU metrics: chosen by the GPUs, with DCGM and exporter packages that belong together."""

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, get_args

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.base import Brought, Component, Context, Group, Wanted, action, glob, named
from gpusetup.components.judge import Judged, versions
from gpusetup.components.parsing import choice, path, wrong
from gpusetup.components.record import record_of, wish_on_record
from gpusetup.errors import PreflightError
from gpusetup.matrix.gpus import gpu_by_id
from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import HostFacts
from gpusetup.model.package import Manager, Package
from gpusetup.model.plan import Action
from gpusetup.model.settings import Exporter, ExporterKind, Monitoring, Settings
from gpusetup.model.stack import Stack
from gpusetup.model.tables import DcgmPair, ExporterPackages

_LISTEN = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\[\]]*):([0-9]{1,5})")

_PORTS = {"dcgm": 9400, "nvidia_gpu_exporter": 9835, "textfile": 9100}
_LOOPBACK = ("127.", "[::1]:", "localhost:")
_FOLDER = "/var/lib/node_exporter/textfile_collector"
"""The folder for a node_exporter that gpusetup installs and that has no default folder."""
_ASKED = "set by gpusetup_monitoring"
_MANY = {"apt": "apt-get remove", "dnf": "dnf remove", "zypper": "zypper remove"}


def _asks(settings: Settings) -> bool:
    """Return whether repositories must be searched."""
    return settings.monitoring != "none" and not (settings.monitoring == "textfile" and settings.monitoring_textfile)


def _patterns(context: Context, matrix: Matrix) -> tuple[str, ...]:
    """Return the package names to search for."""
    if not _asks(context.settings):
        return ()
    table = matrix.monitoring
    names = (*table.dcgm.needed, *table.dcgm.optional, table.dcgm.exporter)
    return (*map(glob, names), *(name for row in table.exporters for name in row.packages))


def _wants(context: Context, manager: Manager, stack: Stack, matrix: Matrix) -> Brought:
    """Return the exporter with its packages; raise if the host cannot have it."""
    settings = context.settings
    if settings.monitoring == "none":
        return Brought()
    _refuse_open(settings)
    kind, why = _by_class(context, stack, matrix) if settings.monitoring == "auto" else (settings.monitoring, _ASKED)
    if kind == "dcgm":
        return _dcgm(context, manager, stack, matrix, why)
    row = next((row for row in matrix.monitoring.exporters if row.kind == kind and manager in row.managers), None)
    if kind == "nvidia_gpu_exporter":
        return Brought(_exporter(settings, kind, why), (_offered(context, row, kind),))
    return _textfile(context, row, why)


def _by_class(context: Context, stack: Stack, matrix: Matrix) -> tuple[ExporterKind, str]:
    """Return an exporter for these GPUs, and why: DCGM only for data-centre GPUs that are not vGPUs."""
    facts = context.facts
    others = {
        gpu.name or gpu.pci_id
        for gpu in facts.gpus
        if {product.kind for product in gpu_by_id(matrix, gpu.pci_id, gpu.subsystem)} != {"datacenter"}
    }
    if facts.vgpu_guest:
        return "textfile", "a vGPU lacks values that DCGM reads from a whole GPU"
    if others:
        return "textfile", f"DCGM is made for data-centre GPUs, not for {', '.join(sorted(others))}"
    older = matrix.monitoring.dcgm.older in facts.packages.installed
    if not older and context.offers.known and _pair(context, _cuda_major(context, stack, matrix), matrix) is None:
        return "textfile", "no repository here has a DCGM with its exporter"
    return "dcgm", "data-centre GPUs: DCGM reports most about their health"


# --- DCGM ----------------------------------------------------------------------------------------------------------


def _dcgm(context: Context, manager: Manager, stack: Stack, matrix: Matrix, why: str) -> Brought:
    names, installed = matrix.monitoring.dcgm, context.facts.packages.installed
    if names.older in installed:
        raise PreflightError(
            "GS-366",
            f"{names.older} {installed[names.older]} is installed: DCGM 3 and older conflict with DCGM 4",
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
            "no repository of this host has a matching pair of DCGM and exporter",
            note=f"DCGM: {offered}; exporter: {exporters}; known pairs: "
            + ", ".join(f"{row.dcgm}-{row.exporter}" for row in matrix.monitoring.pairs[:4]),
        )
    packages = [context.offers.exact(name, pair.dcgm) for name in _filled(names.needed, major)]
    packages += [
        context.offers.exact(name, pair.dcgm)
        for name in _filled(names.optional, major)
        if not context.offers.known or context.offers.has(name, pair.dcgm)
    ]
    packages.append(context.offers.exact(names.exporter, pair.exporter))
    exporter = replace(_exporter(context.settings, "dcgm", why), dcgm=pair.dcgm)
    return Brought(exporter, tuple(packages))


def _pair(context: Context, major: int, matrix: Matrix) -> DcgmPair | None:
    """Return the pair of DCGM and exporter that is installed, else the newest that is offered completely."""
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
    """Return the CUDA major of DCGM's diagnostics: the newest that the driver and all GPU architectures allow."""
    facts = context.facts
    version = stack.driver.version if stack.driver is not None else facts.driver.version if facts.driver else None
    if not version:
        raise PreflightError("GS-363", "gpusetup_monitoring needs a driver, and this host has none and requests none")
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
        f"gpusetup_monitoring={kind} needs {names}, which no repository of this host has",
        hint=(
            "its project publishes packages and no repository: put them into one of your own (gpusetup_extra_sources), "
            "or use gpusetup_monitoring=textfile"
            if kind != "textfile"
            else "install a node_exporter and say where it reads textfiles: gpusetup_monitoring_textfile=/FOLDER"
        ),
    )


def _textfile(context: Context, row: ExporterPackages | None, why: str) -> Brought:
    """Return the textfile exporter; a node_exporter that gpusetup did not install only gets a file in its folder."""
    settings, record = context.settings, record_of(context.facts)
    exporter = _exporter(settings, "textfile", why)
    theirs = replace(exporter, listen="", certificate="", key="", passwords="")
    deaf = ("gpusetup_monitoring_listen",) if settings.monitoring_listen else ()
    note = tuple(f"{name} has no effect: this node_exporter is not gpusetup's" for name in deaf)
    if settings.monitoring_textfile:
        return Brought(replace(theirs, folder=settings.monitoring_textfile), notes=note)
    installed = [name for name in (row.packages if row is not None else ()) if name in context.facts.packages.installed]
    if row is not None and installed and installed[0] not in record.brought:
        if not row.folder:
            told = f"{installed[0]} is installed here already, and where it reads textfiles is not known"
            raise PreflightError("GS-365", told)
        return Brought(replace(theirs, folder=row.folder), notes=note)
    package = _offered(context, row, "textfile")
    folder = row.folder if row is not None and row.folder else _FOLDER
    return Brought(replace(exporter, folder=folder), (package,))


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
    """Raise unless the exporter listens on loopback only, or has certificate, key and passwords."""
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
    )


def _listen(value: Any, label: str) -> str:
    """Read address and port; without an address the exporter listens on all (0.0.0.0)."""
    match = _LISTEN.fullmatch(str(value).strip())
    if match is None or not 0 < int(match[2]) < 65536:
        raise wrong(label, value, "an address and a port: 127.0.0.1:9400, [::1]:9400, 0.0.0.0:9400")
    try:
        address = match[1] and str(ip_address(match[1].strip("[]")))
    except ValueError:
        if match[1] != "localhost":
            raise wrong(label, value, "an address in numbers, and a port: 127.0.0.1:9400, [::1]:9400") from None
        address = "127.0.0.1"
    return f"[{address}]:{match[2]}" if ":" in address else f"{address or '0.0.0.0'}:{match[2]}"  # noqa: S104 - what the site wrote


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    """Yield the action that sets up, changes or removes the exporter, or starts its stopped units."""
    before, exporter = wish_on_record(host.facts, "monitoring"), wanted.parts.get("monitoring")
    if exporter is None:
        if before is not None:
            yield action("monitoring", "none", f"no longer {before.kind}", "gpusetup_monitoring is no longer set")
        return
    where = f" on {exporter.listen}" if exporter.listen else f", a file in {exporter.folder}"
    what = f"{exporter.kind}{f' {exporter.dcgm}' if exporter.dcgm else ''}{where}"
    if not _same_exporter(before, exporter):
        yield action("monitoring", "exporter", what, exporter.why)
        return
    off = [item.what for item in judge.drift.monitoring_units(host.probed, host.record)]
    if off:
        yield action("monitoring", "exporter", what, f"{', '.join(off)} is not running")


def _same_exporter(one: Exporter | None, other: Exporter | None) -> bool:
    """Return whether two exporters are equal apart from the reason they were chosen for."""
    return (one and replace(one, why="")) == (other and replace(other, why=""))


def _variables(facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    """Return the role's variables; "none" removes what an earlier apply set up."""
    exporter: Exporter | None = wanted.parts.get("monitoring")
    if exporter is None:
        return {"gpu_monitoring_exporter": "none"} if wish_on_record(facts, "monitoring") is not None else {}
    names = ("listen", "folder", "dcgm", "certificate", "key", "passwords")
    told = {f"gpu_monitoring_{name}": getattr(exporter, name) for name in names}
    return {"gpu_monitoring_exporter": exporter.kind, **told}


def _why(_host: Judged, wanted: Wanted) -> str:
    exporter: Exporter | None = wanted.parts.get("monitoring")
    return exporter.why if exporter is not None else ""


MONITORING = Component(
    name="monitoring",
    settings={
        "monitoring": choice(*get_args(Monitoring)),
        "monitoring_listen": _listen,
        "monitoring_textfile": path,
        "monitoring_certificate": path,
        "monitoring_key": path,
        "monitoring_passwords": path,
    },
    packages={"monitoring": Group(_why, "gpu_monitoring_packages", leaves=("*",))},
    asks=_asks,
    patterns=_patterns,
    wants=_wants,
    actions=_actions,
    variables=_variables,
    kept="monitoring",
    none=UNSET,
    alike=_same_exporter,
)
