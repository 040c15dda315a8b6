"""No uncorrectable memory errors, and ECC is on where the GPU has it.

Uncorrectable errors since the driver was loaded (volatile) are a fail: results can be wrong. Uncorrectable errors
of the GPU's whole life (aggregate) are a warning, as are many correctable ones and ECC that was switched off or
waits for a reset. GPUs without ECC are unsupported here, not passed.

To do: stop using the GPU, reset or reboot it, run `gpusetup verify --level stress`; exchange it when errors return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.expected import setting
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine
    from gpusetup.verify.smi import SmiGpu


@check("gpu.ecc", "No memory errors", needs=("gpu", "smi"), seconds=lambda machine: machine.took("smi"))
def judge(machine: Machine) -> Finding:
    """Judge every GPU's counters."""
    return from_items([_one(gpu) for gpu in machine.gpus], "ECC on, no uncorrectable errors", unit="errors")


def _one(gpu: SmiGpu) -> Item:
    mode, pending = gpu.text("ecc_mode/current_ecc"), gpu.text("ecc_mode/pending_ecc")
    if mode is None:
        return Item(subject=gpu.label, verdict="unsupported", text="has no ECC")
    volatile, aggregate = _uncorrectable(gpu, "volatile"), _uncorrectable(gpu, "aggregate")
    if volatile:
        return Item(
            subject=gpu.label,
            verdict="fail",
            text=f"{volatile} uncorrectable errors since the driver was loaded",
            measured=volatile,
            expected=0,
            limit=0,
        )
    if gpu.text("ecc_errors/aggregate/sram_threshold_exceeded") == "Yes":
        return Item(
            subject=gpu.label, verdict="fail", text="SRAM errors are above the vendor's threshold: replace the GPU"
        )
    if aggregate:
        return Item(
            subject=gpu.label,
            verdict="warn",
            text=f"{aggregate} uncorrectable errors in its lifetime",
            measured=aggregate,
            expected=0,
            limit=0,
        )
    if mode != "Enabled":
        return Item(subject=gpu.label, verdict="warn", text="ECC is off", measured=mode, expected="Enabled")
    if pending and pending != mode:
        return Item(subject=gpu.label, verdict="warn", text=f"ECC becomes {pending.lower()} at the next reset")
    corrected = sum(
        int(gpu.number(f"ecc_errors/volatile/{kind}") or 0) for kind in ("sram_correctable", "dram_correctable")
    )
    many = int(setting("ecc_correctable_warn"))
    if corrected > many:
        return Item(
            subject=gpu.label,
            verdict="warn",
            text=f"{corrected} correctable errors since the driver was loaded",
            measured=corrected,
            expected=0,
            limit=many,
        )
    return Item(subject=gpu.label, verdict="pass", measured=0, expected=0)


def _uncorrectable(gpu: SmiGpu, life: str) -> int:
    """Sum the counters; their names differ between GPU generations."""
    counters = gpu.children(f"ecc_errors/{life}")
    total = 0
    for name, value in counters.items():
        if ("uncorrectable" in name or "double_bit" in name) and value.isdigit():
            total += int(value)
    return total
