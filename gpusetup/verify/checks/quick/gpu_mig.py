"""MIG is as it was asked to be: off, or on with slices that exist.

A GPU in MIG mode without a slice cannot be used at all; a mode change that waits for a reset surprises at the next
one. Slices have no peers and a part of the memory: bandwidth and NCCL checks do not apply to them.

To do: create slices (`nvidia-smi mig -cgi … -C`, or mig-parted at boot), or switch MIG off and reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
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
    if on and on < len(machine.gpus):
        return Finding("warn", f"MIG is on for {on} of {len(machine.gpus)} GPUs", items=tuple(items))
    return from_items(items, "off" if not on else f"on, {sum(map(len, slices.values()))} slices", nothing="no GPU")
