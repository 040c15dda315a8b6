"""The CuPy kernel smoke test: NVRTC compiles a RawKernel, every GPU runs it, every element equals NumPy's.

The kernel is compiled anew each time (caches are bypassed), over a size that fills no block exactly, into memory
that was poisoned before, without contraction of products and sums, so that the comparison is exact.

To do: `smoke.py` of the role runs alone: `/opt/gpusetup/bin/python smoke.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.verify.checks.smoke import _part
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Finding
    from gpusetup.verify.machine import Machine


@check(
    "cupy.kernel",
    "A CuPy kernel computes correctly",
    needs=("gpu", "python", "context"),
    seconds=_part.seconds("kernel"),
)
def judge(machine: Machine) -> Finding:
    """Judge every GPU's elements."""
    found = _part.items(machine, "kernel", _judge)
    return from_items(found, "compiled by NVRTC, every element correct on every GPU")


def _judge(answer: dict[str, Any]) -> tuple[bool, str]:
    wrong, elements, first = answer.get("wrong"), answer.get("elements", 0), answer.get("first") or {}
    if wrong == 0 and elements > 0:
        return True, f"{elements} elements"
    example = f"element {first.get('index')} is {first.get('got')}, not {first.get('expected')}"
    return False, f"{wrong} of {elements} elements have wrong values; {example}"
