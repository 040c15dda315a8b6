"""No GPU needs a reset, a reboot or to be taken out of service.

Newer drivers say themselves what a GPU needs after an error (`gpu_recovery_action`); older ones do not and are
unsupported here.

To do: `gpusetup doctor --apply` does what it says, after asking: reset, reboot, or drain the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.recovery.table import of_driver
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("gpu.recovery", "No GPU needs a reset", needs=("gpu", "smi"), seconds=lambda machine: machine.took("smi"))
def judge(machine: Machine) -> Finding:
    """Read what each GPU asks for."""
    items = []
    for gpu in machine.gpus:
        action = gpu.text("gpu_recovery_action")
        if action is None:
            items.append(Item(subject=gpu.label, verdict="unsupported", text="this driver does not report it"))
        elif action == "None":
            items.append(Item(subject=gpu.label, verdict="pass", measured=action, expected="None"))
        else:
            need = of_driver(action)
            plain = need.need in ("reset", "reboot")  # the word says it
            text = f"asks for: {action}" + ("" if plain else f", which is {need.text}")
            items.append(Item(subject=gpu.label, verdict="fail", text=text, measured=action, expected="None"))
    return from_items(items, "none does")
