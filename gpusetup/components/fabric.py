"""NVLink fabrics: Fabric Manager and its companions for NVSwitches, and IMEX between machines."""

import hashlib
import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from gpusetup.components.base import Brought, Component, Context, Wanted, action, covering, glob, named
from gpusetup.components.judge import Judged, names, versions
from gpusetup.components.parsing import members, refusing
from gpusetup.components.record import record_of
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import HostFacts
from gpusetup.model.facts_machine import Gpu
from gpusetup.model.package import Manager, Package
from gpusetup.model.plan import Action
from gpusetup.model.repos import FabricPackages, Format, ReposFile
from gpusetup.model.settings import ImexWish
from gpusetup.model.stack import DriverChoice, Stack

_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_MOST_CHANNELS = 2048
"""The driver's own limit (ImexChannelCount)."""
_RACKS = ("GB200", "GB300")
"""Products whose NVLink connects several machines."""


def _wish(value: Any, label: str) -> ImexWish | None:
    """Read the machines of a domain: a list, or {nodes, channels}; None for false."""
    try:
        told = members(value, "nodes")
    except ValueError:
        raise _wrong(label, value) from None
    if told is None:
        return None
    if not set(told) <= {"nodes", "channels"}:
        raise _wrong(label, value)
    nodes, channels = told["nodes"], told.get("channels", 1)
    if not isinstance(nodes, list | tuple) or not nodes or not all(isinstance(node, str) for node in nodes):
        raise _wrong(label, nodes)
    for node in nodes:
        if not _is_node(node):
            raise _wrong(label, node, "write the machines' addresses or names, one text each")
    if twice := next((node for node, times in Counter(nodes).items() if times > 1), ""):
        raise _wrong(label, twice, "name each machine once")
    if not isinstance(channels, int) or isinstance(channels, bool) or not 1 <= channels <= _MOST_CHANNELS:
        raise _wrong(label, channels, f"write how many channels: 1 to {_MOST_CHANNELS}")
    return ImexWish(nodes=tuple(nodes), channels=channels)


def _is_node(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Digits and dots alone are meant as an address, not a name.
        return bool(_NAME.fullmatch(text)) and not re.fullmatch(r"[\d.]+", text)
    return True


_EXAMPLE = 'for example {"nodes": ["10.0.0.1", "10.0.0.2"], "channels": 1}'
_wrong = refusing("GS-375", "is not an IMEX domain", _EXAMPLE)


def imex_of(context: Context, choice: DriverChoice, form: Format) -> tuple[Package, ...]:
    """Return the IMEX package in exactly the driver's version, if asked for; raise if it is not offered."""
    if context.settings.imex is None:
        return ()
    rows = [row for row in context.repos.fabric if row.format == form]
    names = list(dict.fromkeys(named(row.imex, branch=choice.branch) for row in rows))
    found = next((name for name in names if context.offers.has(name, choice.version)), "")
    if context.offers.known and not found:
        raise PreflightError(
            "GS-376", f"gpusetup_imex needs {' or '.join(names)} {choice.version}, in no repository of this host",
            note="IMEX talks only to a driver of exactly its own version",
        )  # fmt: skip
    ours = named(next(covering(rows, int(choice.branch))).imex, branch=choice.branch)
    return (context.offers.exact(found or ours, choice.version),)


def _notes(gpus: Sequence[Gpu], wish: ImexWish | None) -> Iterator[str]:
    """Yield a warning if NVLink is not known to connect these GPUs with other machines: IMEX would do nothing."""
    if wish is not None and not any((gpu.name or "").startswith(_RACKS) for gpu in gpus):
        found = ", ".join(dict.fromkeys(gpu.name or gpu.pci_id for gpu in gpus))
        racks = " and ".join(_RACKS)
        yield f"gpusetup_imex: NVLink of {found} is not known to reach other machines, as that of {racks} does"


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    """Yield the actions for a node list or channel count that differs from the recorded files."""
    record = record_of(host.facts)
    wish: ImexWish | None = wanted.parts.get("imex")
    there = record.files.get(names.IMEX_NODES)
    if wish is None:
        if there is not None:
            yield action("service", "imex", "the IMEX domain as it was before", "gpusetup_imex is no longer set")
        return
    text = names.imex_nodes(wish.nodes)
    listed = there is not None and there.sha256 == hashlib.sha256(text.encode()).hexdigest()
    unit = record.files.get(names.IMEX_UNIT)
    channels = hashlib.sha256(names.imex_unit(wish.channels).encode()).hexdigest()
    if not listed:
        what = f"IMEX domain of {len(wish.nodes)} machines: {', '.join(wish.nodes[:4])}" + (
            " …" * (len(wish.nodes) > 4)
        )
        yield action("service", "imex", what, "set by gpusetup_imex; the service restarts")
    if unit is None or unit.sha256 != channels:
        what = f"{wish.channels} IMEX channel{'s' * (wish.channels > 1)} at every boot"
        yield action("service", "imex-channels", what, "programs share memory through them")


def _wants(context: Context, _manager: Manager, _stack: Stack, _matrix: Matrix) -> Brought:
    """Return the wish alone: the package belongs to those of the fabric, which move with the driver."""
    wish = context.settings.imex
    return Brought(wish, notes=tuple(_notes(context.facts.gpus, wish)))


def _variables(facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    """Return the role's variables; 0 channels removes what an earlier apply set up."""
    wish: ImexWish | None = wanted.parts.get("imex")
    if wish is None:
        return {"gpu_imex_channels": 0} if names.IMEX_NODES in record_of(facts).files else {}
    return {"gpu_imex_nodes": wish.nodes, "gpu_imex_channels": wish.channels}


IMEX = Component(
    name="imex", settings={"imex": _wish}, asks=attrgetter("imex"), wants=_wants, actions=_actions,
    variables=_variables, kept="imex",
)  # fmt: skip


def held(repos: ReposFile, source: str, family: str) -> tuple[str, ...]:
    """Return globs for all packages that move with the driver."""
    return next(row.names for row in repos.stack_names if row.source == source and family in row.families)


def fabric_of(
    context: Context, choice: DriverChoice, form: Format, *, manager_only: bool = False
) -> tuple[Package, ...]:
    """Return Fabric Manager with companions for a machine with NVSwitches, and IMEX if asked for.

    All have exactly the driver's version. IMEX and NVSDM move along if installed.
    """
    switches = context.facts.nvswitch
    imex = imex_of(context, choice, form)
    if switches is None:
        return imex
    row = _fabric_row(context, choice, form)
    names = [row.fabric_manager] if manager_only else [row.fabric_manager, row.nscq]
    names += companions(context.facts.packages.installed, [row.nvsdm] if imex else [row.imex, row.nvsdm])
    packages = [context.offers.exact(named(name, branch=choice.branch), choice.version) for name in names]
    if switches.kind == "nvlink5":
        packages += [Package(name=name) for name in row.nvlink5]
    return (*packages, *imex)


def _fabric_row(context: Context, choice: DriverChoice, form: Format) -> FabricPackages:
    """Return the first row, the branch's own before others, whose name the repository offers; else the branch's own."""
    rows = [row for row in context.repos.fabric if row.format == form]
    ours = next(covering(rows, int(choice.branch)))

    def offered(row: FabricPackages) -> bool:
        return context.offers.has(named(row.fabric_manager, branch=choice.branch), choice.version)

    return next((row for row in (ours, *rows) if offered(row)), ours)


def fabric_globs(context: Context, form: Format) -> tuple[str, ...]:
    """Return globs for fabric packages of any branch: no conflict would remove those of another branch."""
    rows = [row for row in context.repos.fabric if row.format == form]
    if context.facts.nvswitch is None:
        names = [row.imex for row in rows] if context.settings.imex is not None else []
    else:
        names = [name for row in rows for name in (row.fabric_manager, row.nscq, row.imex, row.nvsdm) if name]
    return tuple(dict.fromkeys(glob(name, "[0-9]*") for name in names))


def companions(installed: Iterable[str], templates: Iterable[str]) -> list[str]:
    """Return the templates of which any branch is installed: left behind, they would break or block the driver."""
    found = []
    for template in filter(None, templates):
        patterns = [glob(template, "[0-9]*"), re.sub(r"-?\{\w+\}", "", template)]
        if any(versions.matches(name, patterns) for name in installed):
            found.append(template)
    return found
