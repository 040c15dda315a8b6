"""The power limit is the default one, and the temperature has room.

A lower limit makes a GPU slower than its twin next to it and is easy to forget; it is a warning, since it may be
wanted. Temperature is judged by what the GPU itself says is left before it slows down.

To do: `nvidia-smi -pl` back to the default; look at cooling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.expected import setting
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine
    from gpusetup.verify.smi import SmiGpu


@check("gpu.power", "Power limit and temperature", needs=("gpu", "smi"), seconds=lambda machine: machine.took("smi"))
def judge(machine: Machine) -> Finding:
    """Judge every GPU."""
    items = [_one(gpu) for gpu in machine.gpus]
    hottest = max((gpu.number("temperature/gpu_temp") or 0 for gpu in machine.gpus), default=0)
    limit = (
        machine.gpus[0].number("gpu_power_readings/current_power_limit")
        or machine.gpus[0].number("power_readings/power_limit")
        or 0
    )
    return from_items(items, f"limit {limit:.0f} W, {hottest:.0f} °C at most", unit="W")


def _one(gpu: SmiGpu) -> Item:
    limit = gpu.number("gpu_power_readings/current_power_limit") or gpu.number("power_readings/power_limit")
    default = gpu.number("gpu_power_readings/default_power_limit") or gpu.number("power_readings/default_power_limit")
    room, floor = gpu.number("temperature/gpu_temp_tlimit"), float(setting("temperature_room_warn"))
    temperature, slowdown = gpu.number("temperature/gpu_temp"), gpu.number("temperature/gpu_temp_slow_threshold")
    left = (
        room
        if room is not None
        else slowdown - temperature
        if slowdown is not None and temperature is not None
        else None
    )
    if left is not None and left < floor:
        return Item(
            subject=gpu.label,
            verdict="warn",
            text=f"{left:.0f} °C left before it slows down",
            measured=left,
            limit=floor,
        )
    if limit is None or default is None:
        return Item(subject=gpu.label, verdict="unsupported", text="reports no power limit")
    if limit < default:
        return Item(
            subject=gpu.label,
            verdict="warn",
            text=f"limited to {limit:.0f} W of {default:.0f} W",
            measured=limit,
            expected=default,
            limit=default,
        )
    return Item(subject=gpu.label, verdict="pass", measured=limit, expected=default, limit=default)
