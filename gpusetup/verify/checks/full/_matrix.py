"""Matrix rates, whichever the number format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Item
from gpusetup.verify.checks.full import _bandwidth
from gpusetup.verify.expected import matrix_rate
from gpusetup.verify.figures import bounded
from gpusetup.verify.registry import Finding, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

__all__ = ["judge", "seconds"]


def seconds(machine: Machine) -> float:
    """All formats are measured together."""
    return _bandwidth.seconds(machine, "matrix")


def judge(machine: Machine, kind: str) -> Finding:
    """Judge one format on every GPU."""
    items, rates = _bandwidth.failed(machine, "matrix"), []
    for key, answer in _bandwidth.sound(machine, "matrix"):
        subject, part = _bandwidth.label(key), answer["formats"].get(kind, {"error": "not measured"})
        if "error" in part:
            refused = (
                "NOT_SUPPORTED" in part["error"] or "ARCH_MISMATCH" in part["error"] or "INVALID_VALUE" in part["error"]
            )
            items.append(
                Item(subject=subject, verdict="unsupported" if refused else "fail", text=str(part["error"])[:160])
            )
        elif not part["deviation"] <= part["limit"]:  # NaN is never below
            items.append(
                Item(
                    subject=subject,
                    verdict="fail",
                    text=f"the product is off by {part['deviation']}, {part['limit']} is rounding",
                )
            )
        elif "/" in key:
            items.append(
                Item(
                    subject=subject,
                    verdict="unsupported",
                    text="a MIG slice has a part of the multiprocessors",
                    measured=max(part["tflops"]),
                )
            )
        else:
            busy = bool(machine.workers.get(key, {}).get("busy"))
            items.append(
                bounded(subject, part["tflops"], matrix_rate(kind, machine.opened(key)), "TFLOP/s", gentle=busy)
            )
            rates.append(max(part["tflops"]))
    text = f"{min(rates, default=0):.0f} TFLOP/s and more on every GPU"
    return from_items(items, text, unit="TFLOP/s", nothing="could not run: nothing was measured")
