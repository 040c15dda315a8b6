"""Minutes of matrix products give the same bits each time, and memory keeps its pattern.

The same half precision product is repeated on every GPU; its result must stay equal bit for bit. Between, 80 % of
the free memory is filled with a pattern and read back. A deviation is hardware.

To do: exchange the GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.checks.stress import _burn
from gpusetup.verify.reasons import explain
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("stress.compute", "Results stay right under load", needs=("gpu", "python", "context"), seconds=_burn.seconds)
def judge(machine: Machine) -> Finding:
    """Judge deviations and changed words."""
    missing = _burn.absent(machine)
    if missing is not None:
        return missing
    section = machine.sections["stress"]
    items = [
        Item(subject=f"GPU {key}", verdict="warn", text="another job uses it: not loaded")
        for key in section.get("busy", [])
    ]
    for key, answer in section["workers"].items():
        subject = f"GPU {key}"
        if "error" in answer:
            items.append(Item(subject=subject, verdict="fail", text=explain(answer)))
        elif answer["deviations"] or answer["pattern_errors"]:
            items.append(
                Item(
                    subject=subject,
                    verdict="fail",
                    text=f"{answer['deviations']} products differ, {answer['pattern_errors']} words changed",
                    measured=answer["deviations"],
                    expected=0,
                )
            )
        elif not answer["rounds"]:
            items.append(Item(subject=subject, verdict="skip", text="not run: the time was too short for one pass"))
        else:
            items.append(
                Item(subject=subject, verdict="pass", text=f"{answer['products']} products", measured=0, expected=0)
            )
    return from_items(items, f"{section['minutes']:g} minutes, every product identical")
