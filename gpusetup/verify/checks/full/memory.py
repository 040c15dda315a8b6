"""Device memory bandwidth, by the copy engine and by a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify import bandwidth
from gpusetup.verify.expected import memory
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


def _judged(machine: Machine, kind: str) -> Finding:
    """Judge one kind of access (`copy` or `triad`) on every GPU."""
    items = bandwidth.failed(machine, "memory")
    for key, answer in bandwidth.sound(machine, "memory"):
        subject = bandwidth.label(key)
        if kind == "triad" and answer.get("wrong"):
            items.append(Item(subject, "fail", f"{answer['wrong']} elements have wrong values"))
        elif "/" in key:
            items.append(Item(subject, "unsupported", "a MIG slice has a part of the memory", max(answer[kind])))
        else:
            bound = memory(f"memory.{kind}", machine.opened(key))
            items.append(bandwidth.bounded(subject, answer[kind], bound, "GB/s", gentle=bool(answer.get("gentle"))))
    slowest = min((max(answer[kind]) for _, answer in bandwidth.sound(machine, "memory")), default=0.0)
    return from_items(
        items, f"{slowest:,.0f} GB/s or more on every GPU", unit="GB/s", nothing="not run: nothing was measured"
    )


@check(
    "memory.copy",
    "Device memory copies at full speed",
    needs=("gpu", "python", "context"),
    seconds=bandwidth.seconds("memory"),
)
def memory_copy(machine: Machine) -> Finding:
    """Device memory bandwidth of a copy by the copy engine: bytes read plus bytes written over time.

    Expected is the bandwidth of the memory bus (its width and clock, as the runtime reports them) times what a copy
    usually reaches. Two passes; the better one counts. A MIG slice has a part of the memory and is not judged.

    To do: look at ECC, row remapping and clocks; compare with the GPU beside it.
    """
    return _judged(machine, "copy")


@check(
    "memory.triad",
    "Kernels use the memory at full speed",
    needs=("gpu", "python", "context"),
    seconds=bandwidth.seconds("memory"),
)
def memory_triad(machine: Machine) -> Finding:
    """Device memory bandwidth of a kernel, the triad a = b + s · c: two reads and one write, every element checked.

    Expected as for memory.copy. Two passes; the better one counts.

    To do: as for memory.copy; a wrong element is hardware.
    """
    return _judged(machine, "triad")
