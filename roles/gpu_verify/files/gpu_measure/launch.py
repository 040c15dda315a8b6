"""Measure launch latency: a kernel a thousand times in a stream and in one CUDA graph, for kernels of up to 50 µs."""

import functools
import time
from typing import Any, Callable, Dict

import numpy
from gpu import Gpu, State

LAUNCHES = 1000
LENGTHS = (0, 1, 2, 3, 5, 10, 20, 50)  # target microseconds; 0: an empty kernel


def latency(state: State, request: Dict[str, Any]) -> Dict[str, Any]:
    """Return microseconds per kernel both ways; the graph's time is the kernel's length."""
    gpu = state["gpu"]
    launches = 200 if request.get("gentle") else LAUNCHES
    with gpu.memory(256) as out:

        def spin(steps: int) -> None:
            gpu.kernel("spin")((1,), (32,), (numpy.uint64(steps), numpy.uint64(out)), stream=gpu.stream)

        spin(1)
        long = 200000
        per_step = gpu.seconds(lambda: spin(long)) / long
        rows = []
        _row(gpu, lambda: spin(0), launches)  # warm-up: the first graph of a process is slow
        for length in LENGTHS:
            steps = int(length * 1e-6 / per_step)
            rows.append(_row(gpu, functools.partial(spin, steps), launches))
    return {"launches": launches, "rows": rows}


def _row(gpu: Gpu, kernel: Callable[[], None], launches: int) -> Dict[str, float]:
    def burst() -> None:
        for _ in range(launches):
            kernel()

    for _ in range(20):
        kernel()
    gpu.synchronize()
    stream = min(_wall(gpu, burst) for _ in range(2)) / launches
    with gpu.stream:
        gpu.stream.begin_capture()
        burst()
        graph = gpu.stream.end_capture()
        graph.upload(stream=gpu.stream)
        graph.launch(stream=gpu.stream)
        gpu.synchronize()
        graphed = min(_wall(gpu, lambda: graph.launch(stream=gpu.stream)) for _ in range(3)) / launches
    return {
        "stream_us": round(stream * 1e6, 2),
        "graph_us": round(graphed * 1e6, 2),
        "ratio": round(stream / graphed, 2),
    }


def _wall(gpu: Gpu, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    gpu.synchronize()
    return time.perf_counter() - started
