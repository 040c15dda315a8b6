"""Row remapping and page retirement have nothing pending, and room left.

Ampere and newer replace bad memory rows by spare ones, older GPUs retire pages. A pending repair takes effect at the
next reset and is a warning; a failed one means the spares are used up: exchange the GPU.

To do: reset or reboot for a pending repair; open a return for a failed one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.expected import setting
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine
    from gpusetup.verify.smi import SmiGpu


@check(
    "gpu.memory-repair",
    "No memory repair pending or failed",
    needs=("gpu", "smi"),
    seconds=lambda machine: machine.took("smi"),
)
def judge(machine: Machine) -> Finding:
    """Judge remapped rows, or retired pages on older GPUs."""
    return from_items([_one(gpu) for gpu in machine.gpus], "no remapping pending or failed")


def _one(gpu: SmiGpu) -> Item:
    failure, pending = gpu.text("remapped_rows/remapped_row_failure"), gpu.text("remapped_rows/remapped_row_pending")
    if gpu.text("ecc_errors/unrepairable_memory") == "Yes" or failure == "Yes":
        return Item(subject=gpu.label, verdict="fail", text="row remapping failed: replace the GPU")
    repairs = [
        path for path in ("channel_repair_pending", "tpc_repair_pending") if gpu.text(f"ecc_errors/{path}") == "Yes"
    ]
    if pending == "Yes" or repairs:
        return Item(subject=gpu.label, verdict="warn", text="a memory repair needs a GPU reset")
    if failure is not None:
        remapped = int(gpu.number("remapped_rows/remapped_row_unc") or 0)
        text = f"{remapped} rows remapped for uncorrectable errors" if remapped else ""
        return Item(subject=gpu.label, verdict="warn" if remapped else "pass", text=text, measured=remapped, expected=0)
    retired = [
        gpu.number(f"retired_pages/{kind}/retired_count")
        for kind in ("multiple_single_bit_retirement", "double_bit_retirement")
    ]
    if all(count is None for count in retired):
        return Item(subject=gpu.label, verdict="unsupported", text="reports neither remapped rows nor retired pages")
    total, limit = int(sum(count or 0 for count in retired)), int(setting("retired_pages_fail"))
    if gpu.text("retired_pages/pending_retirement") == "Yes" or gpu.text("retired_pages/pending_blacklist") == "Yes":
        return Item(
            subject=gpu.label,
            verdict="warn",
            text="page retirement needs a reboot",
            measured=total,
            expected=0,
            limit=limit,
        )
    if total >= limit:
        return Item(
            subject=gpu.label,
            verdict="fail",
            text=f"{total} retired pages: replace the GPU",
            measured=total,
            expected=0,
            limit=limit,
        )
    return Item(
        subject=gpu.label,
        verdict="warn" if total else "pass",
        text=f"{total} retired pages" if total else "",
        measured=total,
        expected=0,
        limit=limit,
    )
