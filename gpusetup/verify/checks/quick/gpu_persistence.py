"""Persistence is on: the driver stays initialised when nobody uses the GPU.

Without it the last program to leave tears the driver's state down, the next one waits seconds, and settings made
with nvidia-smi are lost. `nvidia-persistenced` is the lasting way; `nvidia-smi -pm 1` ends with the module.

To do: `systemctl enable --now nvidia-persistenced` (`gpusetup apply` does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check(
    "gpu.persistence",
    "Persistence mode is on",
    needs=("gpu", "smi"),
    seconds=lambda machine: machine.took("smi", "facts"),
)
def judge(machine: Machine) -> Finding:
    """Ask every GPU, then the service."""
    items = []
    for gpu in machine.gpus:
        mode = gpu.text("persistence_mode")
        if mode is None:
            items.append(Item(subject=gpu.label, verdict="unsupported", text="reports no persistence mode"))
        elif mode == "Enabled":
            items.append(Item(subject=gpu.label, verdict="pass", measured=mode))
        else:
            items.append(
                Item(subject=gpu.label, verdict="warn", text="persistence is off", measured=mode, expected="Enabled")
            )
    lasting = (machine.service("persistenced") or {}).get("active") == "active"
    return from_items(items, "on, by nvidia-persistenced" if lasting else "on, set by hand or at boot")
