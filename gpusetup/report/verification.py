"""Build one report from the hosts' observations: judge them, compare with the baseline, describe the hosts."""

import math
from collections import Counter
from collections.abc import Container, Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

from msgspec.structs import replace

from gpusetup import __version__
from gpusetup.errors import GpuSetupError
from gpusetup.model import stamp
from gpusetup.model.verdict import Item, Level, Result
from gpusetup.report.model import POSTPONED, HostReport, Report, Row
from gpusetup.report.topology import Topology, topology_of
from gpusetup.verify.baseline import Baseline, compare, strict
from gpusetup.verify.environments import results_of
from gpusetup.verify.machine import Machine, Wanted
from gpusetup.verify.registry import judge, reblamed

Part = TypeVar("Part", Result, Item)


def describe(machine: Machine) -> tuple[Row, ...]:
    """Return rows that describe the host."""
    kinds = Counter(gpu.name for gpu in machine.gpus)
    named = ", ".join(f"{number} x {name}" for name, number in sorted(kinds.items()))
    if not named:
        named = _unanswered(len(machine.pci_gpus))
    rows = [Row(label="machine", text=named)]
    if machine.module_version:
        rows.append(Row(label="driver", text=f"{machine.module_version} ({machine.module_flavour} module)"))
    kernel = (machine.facts.get("kernel") or {}).get("running")
    if kernel:
        rows.append(Row(label="kernel", text=str(kernel)))
    interpreter = machine.sections.get("interpreter")
    if isinstance(interpreter, dict) and interpreter.get("path"):
        rows.append(Row(label="python", text=str(interpreter["path"])))
    if machine.announced:
        rows.append(Row(label="cloud", text="announces " + "; ".join(map(str, machine.announced))))
    left = machine.document.get("left_alone") or ()
    if left:
        rows.append(Row(label="not measured", text="; ".join(map(str, left))))
    return tuple(rows)


def _unanswered(number: int) -> str:
    if not number:
        return "no NVIDIA GPU"
    return f"{number} NVIDIA GPU{'s' if number > 1 else ''} on PCI, none answers"


def _topology(machine: Machine) -> Topology | None:
    gpus = machine.pci_gpus
    if len(machine.gpus) == len(gpus):
        pairs = zip(gpus, machine.gpus, strict=True)
        gpus = tuple(
            {**gpu, "reported_name": smi.name, "fabric": {"state": smi.text("fabric/state")}} for gpu, smi in pairs
        )
    return topology_of({**machine.facts, "gpus": gpus}, machine.topology)


def host_report(
    name: str, machine: Machine, baseline: Baseline | None = None, *, is_strict: bool = False
) -> HostReport:
    """Judge one host and each of its named environments."""
    results = judge(machine)
    results = (*results, *results_of(machine, results))
    own = baseline.hosts.get(name) if baseline is not None else None
    held = strict(results, machine) if is_strict else results
    results = reblamed(compare(held, own) if own is not None else held, results, machine)
    seconds = float(machine.document.get("seconds", 0.0))
    near = [str(event) for event in machine.announced if event.near(datetime.now(timezone.utc))]
    if near:
        results = tuple(_the_hosts(replace(one, items=tuple(map(_the_hosts, one.items)))) for one in results)
    return HostReport(
        name=name,
        rows=describe(machine),
        topology=_topology(machine),
        results=results,
        seconds=round(seconds, 3) if math.isfinite(seconds) else 0.0,
        simulated=machine.simulated,
        maintenance="; ".join(near),
        level=machine.level,
    )


def _the_hosts(part: Part) -> Part:
    """Blame the machine around the GPU instead of the GPU."""
    return replace(part, blame="host") if part.blame == "gpu" else part


def _judged(
    name: str, document: dict[str, Any], wanted: Wanted | None, baseline: Baseline | None, *, is_strict: bool
) -> HostReport:
    try:
        return host_report(name, Machine(document, wanted), baseline, is_strict=is_strict)
    except GpuSetupError:
        raise
    except Exception as error:  # noqa: BLE001 - documents come from outside; the other hosts are judged
        problem = f"a fault of gpusetup: its observations cannot be read: {type(error).__name__}: {error}"
        return HostReport(name=name, problem=problem, own_fault=True)


def verification_report(
    documents: Mapping[str, dict[str, Any]],
    *,
    level: Level,
    started: datetime,
    seconds: float,
    wanted: Mapping[str, Wanted] | None = None,
    problems: Mapping[str, str] | None = None,
    baseline: Baseline | None = None,
    postponed: Container[str] = (),
    is_strict: bool = False,
) -> Report:
    """Return the report on the observed hosts and on those with problems."""
    hosts = [
        _judged(name, document, (wanted or {}).get(name), baseline, is_strict=is_strict)
        for name, document in documents.items()
    ]
    hosts += [
        HostReport(name=name, problem=text, state=POSTPONED if name in postponed else "")
        for name, text in (problems or {}).items()
    ]
    return Report(
        title="Verification of " + (hosts[0].name if len(hosts) == 1 else f"{len(hosts)} hosts"),
        started=stamp(started),
        seconds=round(seconds, 3),
        program=f"gpusetup {__version__}",
        level=level,
        hosts=tuple(sorted(hosts, key=lambda host: host.name)),
    )
