"""Minutes of matrix products and memory patterns; the same product must come out bit for bit each time."""

import time

import numpy
from cupy.cuda import runtime
from cupy_backends.cuda.libs import cublas
from gpu import free_bytes

SIZE = 8192


def burn(state, request):
    """Work until the time is over; return what was done and every deviation seen."""
    with state["gpu"].stream:  # CuPy hands cuBLAS its current stream
        return _burn(state["gpu"], request)


def _burn(gpu, request):
    size = SIZE
    while size > 1024 and 4 * 2 * size * size > free_bytes(gpu) // 4:
        size //= 2
    count = size * size
    handle = gpu.device.cublas_handle
    one, zero = numpy.ones(1, numpy.float32), numpy.zeros(1, numpy.float32)
    ends = time.time() + request["duration"]
    products = deviations = pattern_errors = rounds = 0
    device_seconds = 0.0
    room = count * 2
    with gpu.memory(room) as a, gpu.memory(room) as b, gpu.memory(room) as c, gpu.memory(room) as reference:
        for pointer, seed in ((a, 1), (b, 2)):
            gpu.launch(
                "random_bits",
                count,
                numpy.uint64(pointer),
                numpy.uint64(count),
                numpy.uint64(seed << 40),
                numpy.int32(1),
                numpy.int32(0),
            )

        def product(into):
            cublas.gemmEx(
                handle,
                0,
                0,
                size,
                size,
                size,
                one.ctypes.data,
                a,
                2,
                size,
                b,
                2,
                size,
                zero.ctypes.data,
                into,
                2,
                size,
                68,
                -1,
            )

        product(reference)
        gpu.synchronize()
        first = _digest(gpu, reference, count)
        block_bytes = (int(free_bytes(gpu) * request.get("memory_fraction", 0.8))) & ~0xFFFF
        with gpu.memory(block_bytes) as block:
            while time.time() < ends:
                rounds += 1
                device_seconds += gpu.seconds(lambda: product(c), 400)
                products += 400
                if _digest(gpu, c, count) != first:
                    deviations += 1
                pattern_errors += _pattern(gpu, block, block_bytes // 8, rounds)
    return {
        "size": size,
        "products": products,
        "rounds": rounds,
        "deviations": deviations,
        "pattern_errors": pattern_errors,
        "memory_bytes": block_bytes,
        "tflops": round(2.0 * size**3 / (device_seconds / rounds) / 1e12, 1) if rounds else None,
    }


def _digest(gpu, pointer, count):
    import hashlib

    raw = numpy.empty(count, dtype=numpy.uint16)
    runtime.memcpyAsync(raw.ctypes.data, pointer, raw.nbytes, runtime.memcpyDeviceToHost, gpu.stream.ptr)
    gpu.synchronize()
    return hashlib.blake2b(raw.data, digest_size=16).hexdigest()


def _pattern(gpu, block, words, seed):
    with gpu.counters(2) as counters:
        gpu.launch("fill", words, numpy.uint64(block), numpy.uint64(words), numpy.uint64(seed))
        gpu.launch(
            "count_wrong",
            words,
            numpy.uint64(block),
            numpy.uint64(words),
            numpy.uint64(seed),
            numpy.uint64(counters.at(0)),
            numpy.uint64(counters.at(1)),
        )
        return counters.read()[0]
