"""Slurm's files for GPU hosts: gres.conf, lines of slurm.conf, and a drop-in that makes slurmd wait for its GPUs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from gpusetup.model.facts import HostFacts
from gpusetup.model.facts_machine import Gpu
from gpusetup_fleet.handover.files import rendered


def slurm_files(hosts: Mapping[str, HostFacts]) -> dict[str, str]:
    """Return the files by name; hosts are named like their nodes."""
    nodes = {name: _types(facts.gpus) for name, facts in hosts.items() if _countable(facts.gpus)}
    return rendered("slurm", gres=list(_gres(nodes)), lines=list(_conf(nodes)))


def slurm_warnings(hosts: Mapping[str, HostFacts]) -> tuple[str, ...]:
    """Return warnings about hosts that need attention."""
    found = []
    for name, facts in sorted(hosts.items()):
        if not facts.gpus:
            found.append(f"{name}: no NVIDIA GPU")
        elif not _countable(facts.gpus):
            found.append(f"{name}: MIG is on; write AutoDetect=nvml for it, which knows the slices' device files")
        elif facts.driver is None or facts.driver.loaded is None:
            found.append(
                f"{name}: no driver is loaded; its device files are named as one driver for all GPUs makes them"
            )
    return tuple(found)


def _countable(gpus: Sequence[Gpu]) -> bool:
    return bool(gpus) and not any(gpu.mig == "Enabled" for gpu in gpus)


def _types(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return each GPU's type in device-file order, spelled as by Slurm's AutoDetect."""
    names = (gpu.reported_name or gpu.name or gpu.pci_id for gpu in gpus)
    return tuple(re.sub(r"[^a-z0-9.-]+", "_", name.lower()).strip("_") for name in names)


def _runs(types: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    """Yield runs of equal GPUs: type, first and last number."""
    for kind, group in groupby(enumerate(types), key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        yield kind, numbers[0], numbers[-1]


def _grouped_by_gpus(nodes: Mapping[str, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """Group hosts with the same GPUs: their names separated by commas, and the GPU types."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, types in sorted(nodes.items()):
        alike.setdefault(types, []).append(name)
    return [(",".join(names), types) for types, names in alike.items()]


def _gres(nodes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for names, types in _grouped_by_gpus(nodes):
        for kind, first, last in _runs(types):
            numbers = f"{first}" if first == last else f"[{first}-{last}]"
            yield f"NodeName={names} Name=gpu Type={kind} File=/dev/nvidia{numbers}"


def _conf(nodes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for names, types in _grouped_by_gpus(nodes):
        kinds = ",".join(f"gpu:{kind}:{types.count(kind)}" for kind in dict.fromkeys(types))
        yield f"NodeName={names} Gres={kinds}"
