"""Where NVSwitches join the GPUs, the fabric is up: state Completed, status Success on every GPU.

Without it nvidia-smi looks healthy and every CUDA program ends with error 802, `system not yet initialized`. The
status counts once the state is Completed. A virtual machine that was given GPUs without the switches shows no
state: its fabric is managed outside, which is said and not passed.

To do: `systemctl status nvidia-fabricmanager`; it must have the driver's exact version (see fabric.manager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.products import product
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine
    from gpusetup.verify.smi import SmiGpu


@check(
    "fabric.state",
    "The NVSwitch fabric is up",
    needs=("gpu", "smi"),
    seconds=lambda machine: machine.took("smi", "facts"),
)
def judge(machine: Machine) -> Finding:
    """Judge state and status of every GPU."""
    stated = [gpu for gpu in machine.gpus if gpu.text("fabric/state")]
    if not stated:
        if machine.nvswitch:
            return Finding(
                "fail",
                "this machine has NVSwitches, but no GPU reports a fabric state: fabric manager is missing or stopped",
            )
        known = product(machine.gpus[0].device_id)
        if known is not None and known.nvswitch and len(machine.gpus) > 1:
            return Finding("skip", "no NVSwitch is visible here: another machine manages the fabric")
        return Finding("unsupported", "no NVSwitch fabric here")
    return from_items([_one(gpu) for gpu in stated], "Completed, Success on every GPU")


def _one(gpu: SmiGpu) -> Item:
    state, status = gpu.text("fabric/state"), gpu.text("fabric/status")
    if state != "Completed":
        return Item(
            subject=gpu.label,
            verdict="fail",
            text=f"fabric is {state}: CUDA fails with error 802",
            measured=state,
            expected="Completed",
        )
    if status != "Success":
        return Item(
            subject=gpu.label,
            verdict="fail",
            text=f"fabric completed with {status}",
            measured=status,
            expected="Success",
        )
    health = {
        name: value
        for name, value in gpu.children("fabric/health").items()
        if value in ("Unhealthy", "Degraded", "True")
    }
    if health:
        named = ", ".join(f"{name} {value}" for name, value in health.items())
        return Item(subject=gpu.label, verdict="warn", text=f"fabric health: {named}", measured=named)
    return Item(subject=gpu.label, verdict="pass", measured=state, expected="Completed")
