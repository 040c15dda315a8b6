"""cuBLAS products in double, single and half precision agree with NumPy's double within rounding.

To do: a wrong product on one GPU of many is hardware: run `--level stress`; on all it is a library mix
(cuda.libraries).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.verify.checks.smoke import _part
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Finding
    from gpusetup.verify.machine import Machine

FORMATS = ("float64", "float32", "float16")


@check("cupy.cublas", "cuBLAS computes correctly", needs=("gpu", "python", "context"), seconds=_part.seconds("cublas"))
def judge(machine: Machine) -> Finding:
    """Judge the relative errors."""
    return from_items(_part.items(machine, "cublas", _judge), "products agree with NumPy in " + ", ".join(FORMATS))


def _judge(answer: dict[str, Any]) -> tuple[bool, str]:
    for name in FORMATS:
        part = answer.get(name) or {}
        error, limit = part.get("error"), part.get("limit")
        if error is None or limit is None or not error <= limit:  # NaN is never below
            return False, f"{name} is off by {error}, {limit} would be rounding error"
    return True, ""
