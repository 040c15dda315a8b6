"""NVLink's error counters stand still at zero.

Replays are repaired on the wire and cost time; recoveries interrupt traffic. A few after boot are usual, many are a
link on its way out.

To do: watch whether they grow (`nvidia-smi nvlink -e`); reset; exchange cable, bridge or board.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.expected import setting
from gpusetup.verify.registry import check, from_items
from gpusetup.verify.smi import nvlink_errors

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check(
    "nvlink.errors",
    "NVLink without errors",
    needs=("gpu", "smi"),
    seconds=lambda machine: machine.took("nvlink_errors"),
)
def judge(machine: Machine) -> Finding:
    """Sum the counters, GPU by GPU."""
    counters = nvlink_errors(machine.command("nvlink_errors").get("stdout", ""))
    if not counters:
        return Finding("unsupported", "no NVLink counters here")
    limit = int(setting("nvlink_errors_warn"))
    items = []
    for gpu in machine.gpus:
        mine = {link: sum(values.values()) for (index, link), values in counters.items() if index == gpu.index}
        total = sum(mine.values())
        recoveries = sum(
            values.get("Recovery Errors", 0) for (index, _), values in counters.items() if index == gpu.index
        )
        worst_link = max(mine, key=lambda link: mine[link], default=0)
        if recoveries or total > limit:
            items.append(
                Item(
                    subject=gpu.label,
                    verdict="warn",
                    text=f"{total} errors, most on link {worst_link}",
                    measured=total,
                    expected=0,
                    limit=limit,
                )
            )
        else:
            items.append(Item(subject=gpu.label, verdict="pass", measured=total, expected=0, limit=limit))
    return from_items(items, "no errors counted", unit="errors")
