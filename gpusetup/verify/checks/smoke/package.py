"""A package above the frameworks.

Each is tried in a process of its own, in the environment that holds it, on every GPU: a small operation whose right
result is computed another way. What is not installed and not part of the lock is not listed. A result that was not
computed on a GPU is a failure, however right. What nobody asked for, and came along with something else, only warns.

To do: the text names what the package said and, where that is known, what mends it. By hand:
`/opt/gpusetup/bin/python package_smoke.py NAME` in the folder of the files that measure.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpusetup.verify.checks.smoke import _package
from gpusetup.verify.registry import Row, from_items, table

if TYPE_CHECKING:
    from gpusetup.model.verdict import Finding
    from gpusetup.verify.machine import Machine


def judge(machine: Machine, package: str) -> Finding:
    """Judge import, version and results."""
    title = next(smoke.title for smoke in _package.SMOKES if smoke.package == package)
    finding = _package.absent(machine, package, title)
    if finding is None:
        answer = _package.answer_of(machine, package) or {}
        items = _package.items(machine, answer)
        names = ", ".join(operation["name"] for operation in (answer.get("gpus") or [{}])[0].get("operations", []))
        notes = "; ".join(sorted({item.text for item in items if item.verdict == "pass" and item.text}))
        finding = from_items(
            items, f"{answer.get('version')}: {names} correct on every GPU" + (f"; {notes}" if notes else "")
        )
    return finding


for smoke in _package.SMOKES:
    table(
        judge,
        (
            Row(
                f"package.{smoke.package}",
                f"{smoke.title} computes on every GPU",
                f"{smoke.title}: {smoke.does}.",
                smoke.package,
            ),
        ),
        needs=("gpu",),
        seconds=partial(_package.seconds, package=smoke.package),
        applies=partial(_package.applies, package=smoke.package),
        asked=partial(_package.asked, package=smoke.package),
    )
