"""Nothing limits the clocks: no thermal slowdown, no power brake.

Reasons that are active now: hardware slowdown, thermal slowdown and the power brake are a fail, since they mean
cooling or supply is broken; the software power cap is a warning on a GPU that is not loaded. Counters since boot
are shown. Idle clocks, application clocks and the display are no reasons to worry.

To do: look at fans, air flow, power cables and the server's own event log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine
    from gpusetup.verify.smi import SmiGpu

GRAVE = {
    "hw_thermal_slowdown": "too hot (hardware slowdown)",
    "hw_power_brake_slowdown": "the power brake is active: check the power supply and cables",
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "too hot (software slowdown)",
}


@check("gpu.throttle", "Nothing limits the clocks", needs=("gpu", "smi"), seconds=lambda machine: machine.took("smi"))
def judge(machine: Machine) -> Finding:
    """Judge the reasons that are active."""
    return from_items([_one(gpu, gpu.index in machine.busy) for gpu in machine.gpus], "no slowdown is active")


def reasons(gpu: SmiGpu) -> dict[str, bool]:
    """Return the reasons by name; the section was renamed in driver 535."""
    found = {}
    for section, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):
        for tag, value in gpu.children(section).items():
            found[tag.removeprefix(prefix)] = value == "Active"
    return found


def _one(gpu: SmiGpu, busy: bool) -> Item:
    active = reasons(gpu)
    if not active:
        return Item(subject=gpu.label, verdict="unsupported", text="reports no throttle reasons")
    for name, text in GRAVE.items():
        if active.get(name):
            return Item(subject=gpu.label, verdict="fail", text=text, measured=name)
    if active.get("sw_power_cap") and not busy:
        return Item(
            subject=gpu.label, verdict="warn", text="limited by its power limit while idle", measured="sw_power_cap"
        )
    return Item(subject=gpu.label, verdict="pass")
