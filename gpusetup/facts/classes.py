"""Group hosts that are alike in all that resolve and plan look at, so that each kind is worked out once."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpusetup.model.facts import HostFacts
    from gpusetup.model.facts_machine import Gpu

_ROOM_STEPS = (1 << 30, 4 << 30, 16 << 30)
"""Free space counts in coarse steps: two hosts differ when an install fits on one of them only."""


def group(hosts: Mapping[str, HostFacts]) -> dict[str, tuple[str, ...]]:
    """Return fingerprint → names of the hosts that share it, in the order in which the hosts came."""
    classes: dict[str, list[str]] = {}
    for name, host in hosts.items():
        classes.setdefault(fingerprint(host), []).append(name)
    return {digest: tuple(names) for digest, names in classes.items()}


def fingerprint(host: HostFacts) -> str:
    """Return a short digest over what matters; names, identifiers, bus addresses, times and bytes are left out."""
    packed = msgspec.json.encode(_what_matters(host), order="deterministic")
    return hashlib.sha256(packed).hexdigest()[:16]


def host_of_one_kind(path: Path) -> HostFacts:
    """Return a host of a file; hosts of several kinds would have several answers."""
    from gpusetup.facts.collect import read_facts

    hosts = read_facts(path).hosts
    classes = group(hosts)
    if len(classes) != 1:
        text = f"{path} holds {len(classes)} kinds of hosts; this command needs one kind"
        raise BadInputError("GS-127", text, path=str(path))
    return hosts[next(iter(classes.values()))[0]]


def _what_matters(host: HostFacts) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(host)
    for name in (
        "boot",
        "gpus",
        "nvswitch",
        "processes",
        "work",
        "disks",
        "interpreter",
        "state",
        "smi",
        "settings",
    ):
        del told[name]
    del told["packages"]["lock"]
    for name in ("vendor", "product"):
        del told["virtualisation"][name]
    told["display"]["sessions"] = bool(host.display.sessions)
    told["display"]["other_gpus"] = sorted(other.pci_id for other in host.display.other_gpus)
    told["gpus"] = sorted(
        [gpu.pci_id, gpu.subsystem, gpu.bound or "", str(gpu.vgpu), gpu.mig or "", _cut(gpu), _fabric(host, index)]
        for index, gpu in enumerate(host.gpus)
    )
    told["nvswitch"] = host.nvswitch.kind if host.nvswitch else None
    told["busy"] = bool(host.processes)
    told["smi"] = host.smi.ok if host.smi else None
    told["room"] = {
        place: [sum(disk.free >= step for step in _ROOM_STEPS), disk.writable] for place, disk in host.disks.items()
    }
    # What was applied and what was begun, not when or in which run.
    told["unreadable"] = sorted({item.field for item in host.unreadable})
    told["state"] = None if host.state is None else [host.state.schema, host.state.lock, sorted(host.state.open)]
    return told


def _cut(gpu: Gpu) -> str:
    """Return the MIG instances as text; "None" where only root may read them."""
    there = gpu.slices.instances if gpu.slices is not None else ()
    return str(there and sorted((item.start, item.profile, item.compute) for item in there))


def _fabric(host: HostFacts, index: int) -> str:
    fabric = host.gpus[index].fabric
    return f"{fabric.state}/{fabric.status}" if fabric else ""
