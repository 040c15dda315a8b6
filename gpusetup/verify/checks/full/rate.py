"""How fast a package's small operation is here.

The operation of the check at level `smoke`, repeated for a while, two passes, the better one. There is no theory for
it: the figure is compared with this host's own first good run (`--baseline FILE`). It includes Python's part, so
it varies more than a bandwidth and has wider limits.

To do: look whether something else uses the processor or the GPU; compare the clocks (gpu.throttle, matrix.*).
After a change of the release, keep a new good run with `--update-baseline`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.bandwidth import bounded
from gpusetup.verify.checks.smoke import python
from gpusetup.verify.registry import Row, from_items, table

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


def judge(machine: Machine, package: str) -> Finding:
    """Return the rates of the operations that were correct; a baseline judges them."""
    answer = python.answer_of(machine, package) or {}
    items: list[Item] = []
    unit = ""
    for gpu in answer.get("gpus") or []:
        for operation in gpu.get("operations") or []:
            if operation.get("rate"):
                unit = str(operation.get("unit"))
                items.append(bounded(f"GPU {gpu.get('index')} {operation['name']}", operation["rate"], None, unit))
    if not items:
        return Finding("skip", f"not measured (see package.{package})")
    told = ", ".join(f"{item.subject}: {item.measured:.4g} {unit}" for item in items)
    return from_items(items, told, unit=unit)


for smoke in python.SMOKES:
    table(
        judge,
        (
            Row(
                f"rate.{smoke.package}",
                f"{smoke.title} is as fast as in its first good run",
                f"{smoke.title}: {smoke.does}.",
                smoke.package,
            ),
        ),
        needs=("gpu",),
        seconds=lambda _machine: 0.0,
        applies=partial(python.applies, package=smoke.package),
        asked=partial(python.asked, package=smoke.package),
    )
