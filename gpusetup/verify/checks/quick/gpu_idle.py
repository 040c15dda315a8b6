"""Nobody else computes on the GPUs while they are measured.

A GPU in use is measured gently (little memory, few repetitions) and its figures are not judged; nobody's process is
stopped. Compute mode is looked at too: Prohibited keeps everybody out, Exclusive Process a second one.

To do: wait, or verify the other GPUs with `--only`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("gpu.idle", "No other program uses the GPUs", needs=("gpu", "smi"), seconds=lambda machine: machine.took("smi"))
def judge(machine: Machine) -> Finding:
    """Name the processes and the compute mode."""
    users = {gpu["index"]: gpu.get("processes", []) for gpu in machine.document.get("gpus", [])}
    items = []
    for gpu in machine.gpus:
        mode, mine = gpu.text("compute_mode"), users.get(gpu.index, [])
        if mode == "Prohibited":
            items.append(
                Item(
                    subject=gpu.label,
                    verdict="fail",
                    text="compute mode Prohibited: no program may use it",
                    measured=mode,
                    expected="Default",
                )
            )
        elif mine:
            first = mine[0]
            more = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
            items.append(
                Item(
                    subject=gpu.label,
                    verdict="warn",
                    text=f"in use by {_named(first)}{more}: measured at low load",
                    measured=len(mine),
                    expected=0,
                )
            )
        elif mode and mode != "Default":
            items.append(
                Item(subject=gpu.label, verdict="warn", text=f"compute mode {mode}", measured=mode, expected="Default")
            )
        else:
            items.append(Item(subject=gpu.label, verdict="pass", measured=0, expected=0))
    return from_items(items, "no compute process")


def _named(process: dict[str, Any]) -> str:
    return f"{process.get('name')} (process {process.get('pid')}, {process.get('memory')})"
