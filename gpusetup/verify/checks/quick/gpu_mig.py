"""MIG is as it was asked to be: off, or on with slices that exist; with `gpusetup_mig`, those that were applied.

A GPU in MIG mode without a slice cannot be used at all; a mode change that waits for a reset surprises at the next
one. Slices have no peers and a part of the memory and of the multiprocessors: what is measured in one is told without
a verdict, for nobody publishes what a slice should reach.

To do: `gpusetup apply` lays out what `gpusetup_mig` says, and `gpusetup drift` says what differs; by hand
`nvidia-smi mig -cgi … -C`, or switch MIG off and reset.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.mig import MigLayout
    from gpusetup.verify.machine import Machine


@check(
    "gpu.mig", "MIG mode is consistent", needs=("gpu", "smi"), seconds=lambda machine: machine.took("smi", "smi_list")
)
def judge(machine: Machine) -> Finding:
    """Judge mode and slices of every GPU."""
    slices = {
        gpu["index"]: [part["profile"] for part in gpu.get("slices", [])] for gpu in machine.document.get("gpus", [])
    }
    items = []
    for gpu in machine.gpus:
        now, next_mode = gpu.text("mig_mode/current_mig"), gpu.text("mig_mode/pending_mig")
        mine = slices.get(gpu.index, [])
        if now is None:
            items.append(Item(subject=gpu.label, verdict="unsupported", text="has no MIG"))
        elif next_mode not in (None, now):
            items.append(
                Item(
                    subject=gpu.label,
                    verdict="warn",
                    text=f"MIG becomes {str(next_mode).lower()} at the next reset",
                    measured=now,
                    expected=next_mode,
                )
            )
        elif gpu.bus_id in machine.wanted.mig:
            items.append(_as_applied(gpu.label, machine.wanted.mig[gpu.bus_id], now, mine))
        elif now == "Enabled" and not mine:
            items.append(
                Item(
                    subject=gpu.label,
                    verdict="fail",
                    text="MIG is on but has no instance: programs cannot use the GPU",
                    measured=now,
                )
            )
        else:
            items.append(Item(subject=gpu.label, verdict="pass", text=", ".join(mine), measured=now))
    on = sum(1 for gpu in machine.gpus if machine.mig(gpu))
    if on and on < len(machine.gpus) and not machine.wanted.mig:
        return Finding("warn", f"MIG is on for {on} of {len(machine.gpus)} GPUs", items=tuple(items))
    return from_items(items, "off" if not on else f"on, {sum(map(len, slices.values()))} slices", nothing="no GPU")


def _as_applied(label: str, layout: MigLayout, mode: str, there: list[str]) -> Item:
    """Compare the slices that programs see with those that were applied; a count of 0 is as many as there can be."""
    found, wanted = Counter(there), Counter[str]()
    for item in layout.instances:
        for name in item.compute or (item.profile,):
            wanted[name] += item.count or max(found[name], 1)
    has = _told(found) if mode == "Enabled" else "off"
    right = _told(wanted) if layout.enabled else "off"
    if has == right:
        return Item(subject=label, verdict="pass", text=", ".join(there), measured=mode)
    text = f"has {has}, and {right} was applied"
    return Item(subject=label, verdict="fail", text=text, measured=has, expected=right)


def _told(slices: Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(slices.items())) or "no slices"
