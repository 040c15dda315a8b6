"""Measure NCCL collectives with one process per GPU and no MPI: rank 0 creates the id, the launcher distributes it.

Sizes and bus bandwidth are defined as in nccl-tests. Every element of every result is checked.
"""

import os
import re
from typing import Any, Dict, List, NamedTuple

import numpy
from cupy.cuda import runtime
from gpu import Gpu, State

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
FLOAT, SUM, MAX = 7, 0, 2  # ncclFloat32, ncclSum, ncclMax
ALIGNED = 1024  # elements: NCCL is slow if a rank's part is not aligned
PASSES = 2


def unique_id(_state: State, _request: Dict[str, Any]) -> Dict[str, List[int]]:
    """Return a new id; the process that made it must take part as rank 0."""
    from cupy.cuda import nccl

    return {"id": list(nccl.get_unique_id())}


def measure(state: State, request: Dict[str, Any]) -> Dict[str, Any]:
    """Join the communicator as `rank` of `world` and measure every collective at every size."""
    from cupy.cuda import nccl

    gpu = state["gpu"]
    rank, world = request["rank"], request["world"]
    with gpu.device:
        communicator = _join(nccl, world, request["id"], rank)
        answer: Dict[str, Any] = {"rank": rank, "world": world, "version": nccl.get_version(), "results": []}
        try:
            largest = max(request["sizes"])
            with gpu.memory(largest) as out, gpu.memory(largest) as into, gpu.memory(256) as barrier:
                job = Job(gpu, communicator, rank, world, out, into, barrier)
                job.wait_for_all()
                for name in request.get("collectives", COLLECTIVES):
                    for size in request["sizes"]:
                        answer["results"].append(job.run(name, size))
        finally:
            communicator.destroy()
    answer["log"] = _facts(os.environ.get("NCCL_DEBUG_FILE", ""))
    return answer


def _join(nccl: Any, world: int, identity: List[int], rank: int) -> Any:
    """Join the communicator: CuPy 14 takes the id as bytes, older releases as a tuple of signed numbers."""
    try:
        return nccl.NcclCommunicator(world, bytes(value & 0xFF for value in identity), rank)
    except TypeError:
        return nccl.NcclCommunicator(world, tuple(identity), rank)


def _facts(path: str) -> Dict[str, Any]:
    """Return NCCL's transports and algorithms, from its log."""
    try:
        with open(path, errors="replace") as stream:
            text = stream.read()
    except OSError:
        return {}
    channels = re.findall(r"(\d+) coll channels.*?(\d+) nvls channels", text)
    return {
        "nvls_channels": int(channels[-1][1]) if channels else None,
        "channels": int(channels[-1][0]) if channels else None,
        "nvls": (re.findall(r"NVLS multicast support is (not available|available)", text) or [None])[-1],
        "network": (re.findall(r"Using network (\S+)", text) or [None])[-1],
    }


class Job(NamedTuple):
    """The communicator and buffers of one rank."""

    gpu: Gpu
    communicator: Any
    rank: int
    world: int
    out: int
    into: int
    barrier: int

    def wait_for_all(self) -> None:
        self._barrier()
        self.gpu.synchronize()

    def _barrier(self) -> None:
        self.communicator.allReduce(self.barrier, self.barrier, 1, FLOAT, SUM, self.gpu.stream.ptr)

    def run(self, name: str, size: int) -> Dict[str, Any]:
        """Check a collective, then time it: algorithm bandwidth is size over time, bus bandwidth the load of a link."""
        count = size // 4
        per_rank = count // self.world // ALIGNED * ALIGNED
        total = per_rank * self.world * 4 if name != "all_reduce" else count * 4
        wrong = self._check(name, count, per_rank)
        once = self._agreed(self._seconds(name, count, per_rank, 2))
        times = max(2, min(50, int(0.2 / max(once, 1e-6))))
        passes = [self._seconds(name, count, per_rank, times) for _ in range(PASSES)]
        factor = (2.0 if name == "all_reduce" else 1.0) * (self.world - 1) / self.world
        return {
            "collective": name,
            "bytes": total,
            "wrong": wrong,
            "seconds": passes,
            "algorithm": [round(total / value / 1e9, 2) for value in passes],
            "bus": [round(total * factor / value / 1e9, 2) for value in passes],
        }

    def _agreed(self, seconds: float) -> float:
        """Return the slowest rank's time on all ranks: each must issue the same number of calls."""
        value = numpy.array([seconds], dtype=numpy.float32)
        stream = self.gpu.stream.ptr
        runtime.memcpyAsync(self.barrier, value.ctypes.data, 4, runtime.memcpyHostToDevice, stream)
        self.communicator.allReduce(self.barrier, self.barrier, 1, FLOAT, MAX, stream)
        runtime.memcpyAsync(value.ctypes.data, self.barrier, 4, runtime.memcpyDeviceToHost, stream)
        self.gpu.synchronize()
        return float(value[0])

    def _issue(self, name: str, count: int, per_rank: int) -> None:
        stream = self.gpu.stream.ptr
        if name == "all_reduce":
            self.communicator.allReduce(self.out, self.into, count, FLOAT, SUM, stream)
        elif name == "all_gather":
            self.communicator.allGather(self.out, self.into, per_rank, FLOAT, stream)
        else:
            self.communicator.reduceScatter(self.out, self.into, per_rank, FLOAT, SUM, stream)

    def _seconds(self, name: str, count: int, per_rank: int, times: int) -> float:
        """Return the time per call; all ranks start from a barrier on the GPU, so host delays are not measured."""
        self._issue(name, count, per_rank)
        self._barrier()
        return self.gpu.seconds(lambda: self._issue(name, count, per_rank), times)

    def _check(self, name: str, count: int, per_rank: int) -> int:
        gpu = self.gpu
        runtime.memsetAsync(self.into, 0xFF, count * 4, gpu.stream.ptr)
        gpu.launch("rank_values", count, self.out, count, self.rank)
        self._issue(name, count, per_rank)
        with gpu.counters(2) as counters:
            wrong = counters.at(0)
            if name == "all_reduce":
                gpu.launch("count_wrong_sum", count, self.into, count, 0, self.world, wrong)
            elif name == "all_gather":
                gpu.launch("count_wrong_gather", count, self.into, per_rank, self.world, wrong)
            else:
                first = self.rank * per_rank
                gpu.launch("count_wrong_sum", per_rank, self.into, per_rank, first, self.world, wrong)
            return counters.read()[0]
