"""Measure memory and host link bandwidth of one GPU in decimal GB/s: two passes each, more if they disagree."""

import os
from typing import Any, Callable, Dict, List

import environment
import numpy
from cupy.cuda import runtime
from gpu import Gpu, State, free_bytes

PASSES, MOST, AGREE = 2, 5, 0.97  # on a shared host, other work sometimes disturbs a pass


def _passes(measure: Callable[[], float]) -> List[float]:
    found = [measure() for _ in range(PASSES)]
    while sorted(found)[-2] < AGREE * max(found) and len(found) < MOST:
        found.append(measure())
    return found


def memory(state: State, request: Dict[str, Any]) -> Dict[str, Any]:
    """Measure the copy engine (bytes read plus written) and the triad a = b + s*c (two reads, one write)."""
    gpu = state["gpu"]
    size = min(64 << 20 if request.get("gentle") else 2 << 30, free_bytes(gpu) // 4) & ~0xFFFF
    times = 4 if request.get("gentle") else 12
    count = size // 4
    with gpu.memory(size) as a, gpu.memory(size) as b, gpu.memory(size) as c, gpu.counters(2) as counters:
        gpu.launch("ramp", count, b, count, numpy.float32(2))
        gpu.launch("ramp", count, c, count, numpy.float32(3))

        def copy() -> None:
            runtime.memcpyAsync(a, b, size, runtime.memcpyDeviceToDevice, gpu.stream.ptr)

        def triad() -> None:
            gpu.launch("triad", count // 4, b, c, a, numpy.float32(0.5), count // 4, exact=True)

        copy()
        copies = _passes(lambda: 2 * size / gpu.seconds(copy, times) / 1e9)
        runtime.memsetAsync(a, 0xFF, size, gpu.stream.ptr)
        triad()
        triads = _passes(lambda: 3 * size / gpu.seconds(triad, times) / 1e9)
        factors = numpy.float32(2), numpy.float32(3), numpy.float32(0.5)
        gpu.launch("count_wrong_triad", count, a, count, *factors, counters.at(0))
        wrong = counters.read()[0]
    return {
        "bytes": size,
        "copy": [round(value, 1) for value in copies],
        "triad": [round(value, 1) for value in triads],
        "wrong": wrong,
        "gentle": bool(request.get("gentle")),
    }


def pcie(state: State, request: Dict[str, Any]) -> Dict[str, Any]:
    """Measure and check copies between device and pinned host memory, from each NUMA node in turn."""
    gpu = state["gpu"]
    size = min(32 << 20 if request.get("gentle") else 512 << 20, free_bytes(gpu) // 4) & ~0xFFFF
    times = 4 if request.get("gentle") else 10
    words = size // 8
    everywhere = os.sched_getaffinity(0)
    nodes: Dict[str, Dict[str, Any]] = {}
    for node, cpus in sorted(request.get("nodes", {}).items()):
        mine = environment.processors(cpus) & everywhere
        if not mine:
            nodes[node] = {"error": "none of this node's processors may be used by this process"}
            continue
        os.sched_setaffinity(0, mine)  # cudaHostAlloc allocates on the node it runs on
        try:
            nodes[node] = _one_node(gpu, size, words, times)
        finally:
            os.sched_setaffinity(0, everywhere)
    return {"bytes": size, "nodes": nodes}


def _one_node(gpu: Gpu, size: int, words: int, times: int) -> Dict[str, Any]:
    host = runtime.hostAlloc(size, 0)
    try:
        with gpu.memory(size) as device:

            def to_device() -> None:
                runtime.memcpyAsync(device, host, size, runtime.memcpyHostToDevice, gpu.stream.ptr)

            def to_host() -> None:
                runtime.memcpyAsync(host, device, size, runtime.memcpyDeviceToHost, gpu.stream.ptr)

            gpu.fill(device, words, size)
            to_host()
            down = _passes(lambda: size / gpu.seconds(to_host, times) / 1e9)
            runtime.memsetAsync(device, 0, size, gpu.stream.ptr)
            to_device()
            up = _passes(lambda: size / gpu.seconds(to_device, times) / 1e9)
            wrong = gpu.wrong(device, words, size)
    finally:
        runtime.freeHost(host)
    return {"h2d": [round(value, 2) for value in up], "d2h": [round(value, 2) for value in down], "wrong": wrong}
