"""Under load the GPUs keep cool enough: no thermal slowdown, no power brake, clocks above a floor.

Sampled every five seconds. Reaching the power limit is what a loaded GPU does; slowing down for heat, or the power
brake, is a fail. Clocks far below the highest one are a warning; at the power limit they may fall further before that.

To do: fans, air flow, dust, power supply; neighbours that stay cooler show where.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Curve, Curves, Finding, Item
from gpusetup.verify.checks.stress import _burn
from gpusetup.verify.expected import setting
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

# Bits of the reasons' mask, as NVML defines them.
BITS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POWER_LIMIT = 0x04


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


@check("stress.thermal", "Temperature under load is fine", needs=("gpu", "python", "context"), seconds=_burn.seconds)
def judge(machine: Machine) -> Finding:
    """Judge every GPU's samples."""
    missing = _burn.absent(machine)
    if missing is not None:
        return missing
    samples = machine.sections["stress"]["samples"]
    loaded = {key.split("/")[0] for key in machine.sections["stress"]["workers"]}
    items, temperatures, powers = [], [], []
    for gpu in machine.gpus:
        if str(gpu.index) not in loaded:
            continue
        rows = [
            (sample["at"], row) for sample in samples for row in sample["rows"] if row.get("index") == str(gpu.index)
        ]
        if not rows:
            items.append(
                Item(subject=gpu.label, verdict="skip", text="not checked: nvidia-smi gave no sample under load")
            )
            continue
        seen = 0
        for _, row in rows:
            reasons = row.get("reasons", "0")
            seen |= int(reasons, 16) if reasons.startswith("0x") else 0
        named = [text for bit, text in BITS.items() if seen & bit]
        clocks = [clock for _, row in rows if (clock := _number(row.get("clocks.sm")))]
        highest = gpu.number("max_clocks/sm_clock")
        floor = setting("stress_power_limit_warn" if seen & POWER_LIMIT else "stress_slowdown_warn")
        hottest = max((value for _, row in rows if (value := _number(row.get("temperature.gpu")))), default=0.0)
        temperatures.append(
            Curve(
                name=gpu.label,
                points=tuple((at, value) for at, row in rows if (value := _number(row.get("temperature.gpu")))),
            )
        )
        powers.append(
            Curve(
                name=gpu.label,
                points=tuple((at, value) for at, row in rows if (value := _number(row.get("power.draw")))),
            )
        )
        if named:
            items.append(
                Item(
                    subject=gpu.label, verdict="fail", text=f"{', '.join(named)} at {hottest:.0f} °C", measured=hottest
                )
            )
        elif clocks and highest and median(clocks) < floor * highest:
            why = "at its power limit" if seen & POWER_LIMIT else "without a thermal reason"
            items.append(
                Item(
                    subject=gpu.label,
                    verdict="warn",
                    text=f"clock fell to {median(clocks):.0f} of {highest:.0f} MHz {why}",
                    measured=median(clocks),
                    expected=highest,
                    limit=round(floor * highest),
                )
            )
        else:
            items.append(Item(subject=gpu.label, verdict="pass", measured=hottest))
    hottest = max(
        (float(item.measured) for item in items if item.verdict == "pass" and isinstance(item.measured, float)),
        default=0.0,
    )
    finding = from_items(
        items,
        f"{hottest:.0f} °C maximum, no thermal slowdown",
        unit="°C",
        nothing="not checked: no sample was taken",
    )
    figures = (
        Curves(title="Temperature under load", x_label="seconds", y_label="°C", lines=tuple(temperatures)),
        Curves(title="Power under load", x_label="seconds", y_label="W", lines=tuple(powers)),
    )
    return Finding(
        finding.verdict,
        finding.text,
        finding.measured,
        finding.expected,
        finding.limit,
        "",
        finding.items,
        figures if temperatures else (),
    )
