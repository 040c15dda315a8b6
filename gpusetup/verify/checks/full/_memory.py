"""Device memory bandwidth, whichever way it was used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.checks.full import _bandwidth
from gpusetup.verify.expected import memory
from gpusetup.verify.figures import bounded
from gpusetup.verify.registry import from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

__all__ = ["judge", "seconds"]


def seconds(machine: Machine) -> float:
    """Both ways are measured together."""
    return _bandwidth.seconds(machine, "memory")


def judge(machine: Machine, kind: str) -> Finding:
    """Judge one way on every GPU."""
    items = _bandwidth.failed(machine, "memory")
    for key, answer in _bandwidth.sound(machine, "memory"):
        subject = _bandwidth.label(key)
        if kind == "triad" and answer.get("wrong"):
            items.append(Item(subject=subject, verdict="fail", text=f"{answer['wrong']} elements have wrong values"))
        elif "/" in key:
            items.append(
                Item(
                    subject=subject,
                    verdict="unsupported",
                    text="a MIG slice has a part of the memory",
                    measured=max(answer[kind]),
                )
            )
        else:
            bound = memory(f"memory.{kind}", machine.opened(key))
            items.append(bounded(subject, answer[kind], bound, "GB/s", gentle=bool(answer.get("gentle"))))
    slowest = min((max(answer[kind]) for _, answer in _bandwidth.sound(machine, "memory")), default=0.0)
    return from_items(
        items, f"{slowest:,.0f} GB/s or more on every GPU", unit="GB/s", nothing="not run: nothing was measured"
    )
