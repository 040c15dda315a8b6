"""Matrix rate through cuBLAS for the number formats people train in, on random data, checked against double precision.

cublasGemmEx is called directly: CuPy has no bfloat16 type, and importing a framework for it would cost seconds.
"""

import time

import numpy
from cupy.cuda import runtime
from cupy_backends.cuda.libs import cublas
from gpu import free_bytes

SIZE = 8192
PASSES = 2
PAUSE = 0.5  # seconds between bursts: a rate is what the chip can do, not what its power limit allows for minutes (see stress)
# name -> cudaDataType, bytes, cublasComputeType, kernel's kind of random bits, relative error that is rounding
FORMATS = {
    "fp32": (0, 4, 68, 0, 2e-5),
    "tf32": (0, 4, 77, 0, 2e-3),
    "fp16": (2, 2, 68, 1, 2e-3),
    "bf16": (14, 2, 68, 2, 1e-2),
}


def rates(state, request):
    """TFLOP/s per format; a format the GPU or library refuses says why."""
    gpu = state["gpu"]
    size = SIZE
    while size > 1024 and 3 * 4 * size * size > free_bytes(gpu) // 2:
        size //= 2
    if request.get("gentle"):
        size = min(size, 2048)
    answer = {"size": size, "formats": {}}
    with gpu.stream:  # CuPy hands cuBLAS its current stream
        for name in request.get("formats") or sorted(FORMATS):
            try:
                answer["formats"][name] = _rate(gpu, gpu.device.cublas_handle, name, size, request)
            except Exception as failure:
                answer["formats"][name] = {"error": f"{type(failure).__name__}: {str(failure)[:300]}"}
    return answer


def _rate(gpu, handle, name, size, request):
    kind, width, compute, bits, limit = FORMATS[name]
    count = size * size
    one, zero = numpy.ones(1, numpy.float32), numpy.zeros(1, numpy.float32)
    with gpu.memory(count * width) as a, gpu.memory(count * width) as b, gpu.memory(count * width) as c:
        for pointer, seed in ((a, 1), (b, 2)):
            gpu.launch(
                "random_bits",
                count,
                numpy.uint64(pointer),
                numpy.uint64(count),
                numpy.uint64(seed << 40),
                numpy.int32(bits),
                numpy.int32(request.get("uniform", 0)),
            )
        runtime.memsetAsync(c, 0xFF, count * width, gpu.stream.ptr)

        def product():
            # column-major C = A * B
            cublas.gemmEx(
                handle,
                0,
                0,
                size,
                size,
                size,
                one.ctypes.data,
                a,
                kind,
                size,
                b,
                kind,
                size,
                zero.ctypes.data,
                c,
                kind,
                size,
                compute,
                -1,
            )

        product()
        once = gpu.seconds(product, 1)
        times = 2 if request.get("gentle") else max(3, min(20, int(0.05 / once)))
        passes = []
        for _ in range(PASSES):
            time.sleep(PAUSE)
            product()
            passes.append(2.0 * size**3 / gpu.seconds(product, times) / 1e12)
        deviation = _deviation(gpu, a, b, c, kind, width, size)
    return {"tflops": [round(value, 1) for value in passes], "deviation": deviation, "limit": limit}


def _deviation(gpu, a, b, c, kind, width, size):
    """Relative error of 8 whole columns of the result against double precision."""
    columns = 8
    left = _fetch(gpu, a, size * size, kind, width).reshape(size, size)  # row i = column i of A
    right = _fetch(gpu, b, size * columns, kind, width).reshape(columns, size)
    got = _fetch(gpu, c, size * columns, kind, width).reshape(columns, size)
    exact = right.astype(numpy.float64) @ left.astype(numpy.float64)
    return float(numpy.linalg.norm(got - exact) / numpy.linalg.norm(exact))


def _fetch(gpu, pointer, count, kind, width):
    raw = numpy.empty(count, dtype={0: numpy.float32, 2: numpy.float16, 14: numpy.uint16}[kind])
    runtime.memcpyAsync(raw.ctypes.data, pointer, count * width, runtime.memcpyDeviceToHost, gpu.stream.ptr)
    gpu.synchronize()
    return (raw.astype(numpy.uint32) << 16).view(numpy.float32) if kind == 14 else raw
