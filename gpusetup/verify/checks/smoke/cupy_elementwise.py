"""CuPy's own operations work: their kernels include CUDA's headers, a RawKernel need not.

`cannot open source file "cuda_fp16.h"` is what a CuPy wheel says when neither a toolkit nor NVIDIA's header wheels
are there.

To do: install `nvidia-cuda-runtime` and `nvidia-cuda-cccl` wheels of the same CUDA major, or the toolkit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.verify.checks.smoke import _part
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Finding
    from gpusetup.verify.machine import Machine


@check(
    "cupy.elementwise",
    "CuPy's own kernels compile",
    needs=("gpu", "python", "context"),
    seconds=_part.seconds("elementwise"),
)
def judge(machine: Machine) -> Finding:
    """Judge a sum and a half precision product."""
    return from_items(_part.items(machine, "elementwise", _judge), "integer and half-precision results are correct")


def _judge(answer: dict[str, Any]) -> tuple[bool, str]:
    for got, expected in (("sum", "expected"), ("half", "expected_half")):
        if answer.get(got) is None or answer[got] != answer.get(expected):
            return False, f"{got} is {answer.get(got)}, not {answer.get(expected)}"
    return True, ""
