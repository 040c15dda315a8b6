"""Run matrix products and memory patterns for minutes; the same product must be bit for bit identical each time."""

import hashlib
import time
from typing import Any, Dict

import matrix
import numpy
from gpu import Gpu, State, free_bytes


def burn(state: State, request: Dict[str, Any]) -> Dict[str, Any]:
    """Work until the time is over; return the amount of work and the deviations found."""
    with state["gpu"].stream:  # CuPy passes its current stream to cuBLAS
        return _burn(state["gpu"], request)


def _burn(gpu: Gpu, request: Dict[str, Any]) -> Dict[str, Any]:
    size = matrix.SIZE
    while size > 1024 and 4 * 2 * size * size > free_bytes(gpu) // 4:
        size //= 2
    count = size * size
    ends = time.monotonic() + request["duration"]
    products = deviations = pattern_errors = rounds = 0
    device_seconds = 0.0
    room = count * 2
    with gpu.memory(room) as a, gpu.memory(room) as b, gpu.memory(room) as c, gpu.memory(room) as reference:
        product = matrix.Product(gpu, matrix.FORMATS["fp16"], size, (a, b))
        product.into(reference)
        gpu.synchronize()
        once = gpu.seconds(lambda: product.into(reference), 2)
        times = max(1, min(400, int(2 / once)))  # an old GPU needs minutes for 400
        first = _digest(gpu, reference, count)
        block_bytes = (int(free_bytes(gpu) * request.get("memory_fraction", 0.8))) & ~0xFFFF
        with gpu.memory(block_bytes) as block:
            words = block_bytes // 8
            while time.monotonic() < ends:
                rounds += 1
                device_seconds += gpu.seconds(lambda: product.into(c), times)
                products += times
                if _digest(gpu, c, count) != first:
                    deviations += 1
                gpu.fill(block, words, rounds)
                pattern_errors += gpu.wrong(block, words, rounds)
    return {
        "size": size,
        "products": products,
        "rounds": rounds,
        "deviations": deviations,
        "pattern_errors": pattern_errors,
        "memory_bytes": block_bytes,
        "tflops": round(2.0 * size**3 / (device_seconds / rounds) / 1e12, 1) if rounds else None,
    }


def _digest(gpu: Gpu, pointer: int, count: int) -> str:
    return hashlib.blake2b(gpu.fetch(pointer, count, numpy.uint16).data, digest_size=16).hexdigest()
