"""CuPy on every GPU: memory, element-wise operations, a RawKernel, cuBLAS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.verify.checks.smoke import cuda
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Finding
    from gpusetup.verify.machine import Machine


@check("gpu.memory", "Memory keeps a pattern", needs=("gpu", "python", "context"), seconds=cuda.seconds_of("memory"))
def gpu_memory(machine: Machine) -> Finding:
    """Memory keeps what is written: a pattern over up to 4 GiB, and its complement, read back on the GPU.

    A GPU in use by somebody else gets 64 MiB. The whole memory is a matter of `--level stress`.

    To do: reset the GPU, run `--level stress`; exchange it when words change again.
    """
    sizes = [worker.get("smoke", {}).get("memory", {}).get("bytes", 0) for worker in machine.workers.values()]
    return from_items(
        cuda.items_of(machine, "memory", _kept), f"{min(sizes, default=0) / 2**30:.3g} GiB or more, twice, on every GPU"
    )


def _kept(answer: dict[str, Any]) -> tuple[bool, str]:
    well = answer.get("wrong") == 0 and answer.get("bytes", 0) > 0
    return well, "" if well else f"{answer.get('wrong')} of {answer.get('bytes', 0) // 8} words changed"


@check(
    "cupy.elementwise",
    "CuPy's own kernels compile",
    needs=("gpu", "python", "context"),
    seconds=cuda.seconds_of("elementwise"),
)
def cupy_elementwise(machine: Machine) -> Finding:
    """CuPy's own operations work: their kernels include CUDA's headers, a RawKernel need not.

    `cannot open source file "cuda_fp16.h"` is what a CuPy wheel says when neither a toolkit nor NVIDIA's header wheels
    are there.

    To do: install `nvidia-cuda-runtime` and `nvidia-cuda-cccl` wheels of the same CUDA major, or the toolkit.
    """
    return from_items(cuda.items_of(machine, "elementwise", _equal), "integer and half-precision results are correct")


def _equal(answer: dict[str, Any]) -> tuple[bool, str]:
    for got, expected in (("sum", "expected"), ("half", "expected_half")):
        if answer.get(got) is None or answer[got] != answer.get(expected):
            return False, f"{got} is {answer.get(got)}, not {answer.get(expected)}"
    return True, ""


@check(
    "cupy.kernel",
    "A CuPy kernel computes correctly",
    needs=("gpu", "python", "context"),
    seconds=cuda.seconds_of("kernel"),
)
def cupy_kernel(machine: Machine) -> Finding:
    """The CuPy kernel smoke test: NVRTC compiles a RawKernel, every GPU runs it, every element equals NumPy's.

    The kernel is compiled each time (caches are bypassed), over a size that fills no block exactly, into memory
    that was poisoned before, without contraction of products and sums, so that the comparison is exact.

    To do: `smoke.py` of the role runs alone: `/opt/gpusetup/bin/python smoke.py`.
    """
    found = cuda.items_of(machine, "kernel", _right)
    return from_items(found, "compiled by NVRTC, every element correct on every GPU")


def _right(answer: dict[str, Any]) -> tuple[bool, str]:
    wrong, elements, first = answer.get("wrong"), answer.get("elements", 0), answer.get("first") or {}
    if wrong == 0 and elements > 0:
        return True, f"{elements} elements"
    example = f"element {first.get('index')} is {first.get('got')}, not {first.get('expected')}"
    return False, f"{wrong} of {elements} elements have wrong values; {example}"


FORMATS = ("float64", "float32", "float16")


@check(
    "cupy.cublas", "cuBLAS computes correctly", needs=("gpu", "python", "context"), seconds=cuda.seconds_of("cublas")
)
def cupy_cublas(machine: Machine) -> Finding:
    """cuBLAS products in double, single and half precision agree with NumPy's double within rounding.

    To do: a wrong product on one GPU of many is hardware: run `--level stress`; on all it is a library mix
    (cuda.libraries).
    """  # noqa: D403 - the library's name
    return from_items(cuda.items_of(machine, "cublas", _close), "products agree with NumPy in " + ", ".join(FORMATS))


def _close(answer: dict[str, Any]) -> tuple[bool, str]:
    for name in FORMATS:
        part = answer.get(name) or {}
        error, limit = part.get("error"), part.get("limit")
        if error is None or limit is None or not error <= limit:  # NaN is never below
            return False, f"{name} is off by {error}, {limit} would be rounding error"
    return True, ""
