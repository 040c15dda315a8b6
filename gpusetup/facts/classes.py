"""Groups hosts that are equal in all that matters, so that each kind is printed once."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpusetup.errors import BadInputError
from gpusetup.facts.collect import read_facts
from gpusetup.model.facts import HostFacts
from gpusetup.model.facts_machine import Gpu

_ROOM_STEPS = (1 << 30, 4 << 30, 16 << 30)
"""Free space counts in these steps: hosts differ if an installation fits on only one of them."""


def group(hosts: Mapping[str, HostFacts]) -> dict[str, tuple[str, ...]]:
    """Return fingerprint → names of the hosts with it, in the given order."""
    classes: dict[str, list[str]] = {}
    for name, host in hosts.items():
        classes.setdefault(fingerprint(host), []).append(name)
    return {digest: tuple(names) for digest, names in classes.items()}


def fingerprint(host: HostFacts) -> str:
    """Return a short digest of a host without names, identifiers, bus addresses, times and exact sizes."""
    packed = msgspec.json.encode(_what_matters(host), order="deterministic")
    return hashlib.sha256(packed).hexdigest()[:16]


def host_of_one_kind(path: Path) -> HostFacts:
    """Return a host of a file; raise unless all its hosts are of one kind."""
    hosts = read_facts(path).hosts
    classes = group(hosts)
    if len(classes) != 1:
        text = f"{path} holds {len(classes)} kinds of hosts; this command needs one kind"
        raise BadInputError("GS-127", text, path=str(path))
    return hosts[next(iter(classes.values()))[0]]


def _what_matters(host: HostFacts) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(host)
    for name in ("boot", "gpus", "nvswitch", "processes", "work", "disks", "interpreter", "state", "smi", "settings"):
        del told[name]
    del told["packages"]["lock"]
    for name in ("vendor", "product"):
        del told["virtualisation"][name]
    told["display"]["sessions"] = bool(host.display.sessions)
    told["display"]["other_gpus"] = sorted(other.pci_id for other in host.display.other_gpus)
    told["gpus"] = sorted(
        [gpu.pci_id, gpu.subsystem, gpu.bound or "", str(gpu.vgpu), gpu.mig or "", _cut(gpu), _fabric(gpu)]
        for gpu in host.gpus
    )
    told["nvswitch"] = host.nvswitch.kind if host.nvswitch else None
    told["busy"] = bool(host.processes)
    told["smi"] = host.smi.ok if host.smi else None
    told["room"] = {
        place: [sum(disk.free >= step for step in _ROOM_STEPS), disk.writable] for place, disk in host.disks.items()
    }
    # What was applied and begun, not when.
    told["unreadable"] = sorted({item.field for item in host.unreadable})
    told["state"] = None if host.state is None else [host.state.schema, host.state.lock, sorted(host.state.open)]
    return told


def _cut(gpu: Gpu) -> str:
    """Return the MIG instances as text; "None" if only root may read them."""
    there = gpu.slices.instances if gpu.slices is not None else ()
    return str(there and sorted((item.start, item.profile, item.compute) for item in there))


def _fabric(gpu: Gpu) -> str:
    fabric = gpu.fabric
    return f"{fabric.state}/{fabric.status}" if fabric else ""
