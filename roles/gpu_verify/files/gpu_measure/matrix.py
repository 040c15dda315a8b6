"""Measure cuBLAS matrix products in the formats used for training, on random data, checked in double precision.

cublasGemmEx is called directly: CuPy has no bfloat16 type, and importing a framework for it would take seconds.
"""

import time
from typing import Any, Dict, NamedTuple, Tuple

import numpy
from cupy.cuda import runtime
from cupy_backends.cuda.libs import cublas
from gpu import Gpu, State, free_bytes

SIZE = 8192
PASSES = 2
PAUSE = 0.5
"""Seconds between bursts: this measures the chip, not what its power limit allows over minutes (see stress)."""


class Format(NamedTuple):
    """A number format with its codes in CUDA's libraries and our kernel; relative errors up to `limit` are rounding."""

    kind: int  # cudaDataType
    width: int  # bytes
    compute: int  # cublasComputeType
    bits: int  # random_bits' kind
    limit: float


FORMATS = {
    "fp32": Format(0, 4, 68, 0, 2e-5),
    "tf32": Format(0, 4, 77, 0, 2e-3),
    "fp16": Format(2, 2, 68, 1, 2e-3),
    "bf16": Format(14, 2, 68, 2, 1e-2),
}


class Product:
    """Products of two square random matrices; column-major, as in cuBLAS."""

    def __init__(self, gpu: Gpu, form: Format, size: int, factors: Tuple[int, int]) -> None:
        self.gpu, self.form, self.size, self.factors = gpu, form, size, factors
        self._handle = gpu.device.cublas_handle
        self._one, self._zero = numpy.ones(1, numpy.float32), numpy.zeros(1, numpy.float32)
        count = size * size
        for seed, pointer in enumerate(factors, 1):
            gpu.launch("random_bits", count, pointer, count, seed << 40, numpy.int32(form.bits))

    def into(self, result: int) -> None:
        """Enqueue one product."""
        size, kind = self.size, self.form.kind
        one, zero = self._one.ctypes.data, self._zero.ctypes.data
        left, right = ((factor, kind, size) for factor in self.factors)
        cublas.gemmEx(
            self._handle, 0, 0, size, size, size, one, *left, *right, zero, result, kind, size, self.form.compute, -1
        )

    def deviation(self, result: int) -> float:
        """Return the relative error of 8 columns of the result against double precision."""
        columns, size = 8, self.size
        left = self._fetch(self.factors[0], size * size).reshape(size, size)  # row i = column i of A
        right = self._fetch(self.factors[1], size * columns).reshape(columns, size)
        got = self._fetch(result, size * columns).reshape(columns, size)
        exact = right.astype(numpy.float64) @ left.astype(numpy.float64)
        return float(numpy.linalg.norm(got - exact) / numpy.linalg.norm(exact))

    def _fetch(self, pointer: int, count: int) -> Any:
        kind = self.form.kind
        raw = self.gpu.fetch(pointer, count, {0: numpy.float32, 2: numpy.float16, 14: numpy.uint16}[kind])
        return (raw.astype(numpy.uint32) << 16).view(numpy.float32) if kind == 14 else raw


def rates(state: State, request: Dict[str, Any]) -> Dict[str, Any]:
    """Return TFLOP/s per format, or the error if the GPU or library refuses a format."""
    gpu = state["gpu"]
    size = SIZE
    while size > 1024 and 3 * 4 * size * size > free_bytes(gpu) // 2:
        size //= 2
    if request.get("gentle"):
        size = min(size, 2048)
    formats: Dict[str, Dict[str, Any]] = {}
    with gpu.stream:  # CuPy passes its current stream to cuBLAS
        for name in request.get("formats") or sorted(FORMATS):
            try:
                formats[name] = _rate(gpu, name, size, request)
            except Exception as failure:
                formats[name] = {"error": f"{type(failure).__name__}: {str(failure)[:300]}"}
    return {"size": size, "formats": formats}


def _rate(gpu: Gpu, name: str, size: int, request: Dict[str, Any]) -> Dict[str, Any]:
    form = FORMATS[name]
    room = size * size * form.width
    with gpu.memory(room) as a, gpu.memory(room) as b, gpu.memory(room) as c:
        product = Product(gpu, form, size, (a, b))
        runtime.memsetAsync(c, 0xFF, room, gpu.stream.ptr)

        def work() -> None:
            product.into(c)

        work()
        once = gpu.seconds(work, 1)
        times = 2 if request.get("gentle") else max(3, min(20, int(0.05 / once)))
        passes = []
        for _ in range(PASSES):
            time.sleep(PAUSE)
            work()
            passes.append(2.0 * size**3 / gpu.seconds(work, times) / 1e12)
        deviation = product.deviation(c)
    return {"tflops": [round(value, 1) for value in passes], "deviation": deviation, "limit": form.limit}
