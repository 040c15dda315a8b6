"""NCCL collectives, one process per GPU, no MPI: rank 0 makes the id, the launcher hands it round.

Sizes and bus bandwidth are counted as nccl-tests counts them. Every element of every result is checked.
"""

import os
import re
import time

import numpy
from cupy.cuda import runtime

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
FLOAT, SUM, MAX = 7, 0, 2  # ncclFloat32, ncclSum, ncclMax
ALIGNED = 1024  # elements: a rank's part starts aligned, or NCCL copies it slowly
PASSES = 2


def unique_id(_state, _request):
    """A fresh id; the process that made it must take part as rank 0."""
    from cupy.cuda import nccl

    return {"id": list(nccl.get_unique_id())}


def measure(state, request):
    """Join the communicator as `rank` of `world` and measure every collective at every size."""
    from cupy.cuda import nccl

    gpu = state["gpu"]
    rank, world = request["rank"], request["world"]
    with gpu.device:
        started = time.time()
        communicator = _join(nccl, world, request["id"], rank)
        answer = {"rank": rank, "world": world, "version": nccl.get_version(), "init_seconds": None, "results": []}
        try:
            largest = max(request["sizes"])
            with gpu.memory(largest) as out, gpu.memory(largest) as into, gpu.memory(256) as barrier:
                job = Job(gpu, communicator, nccl, rank, world, out, into, barrier)
                job.wait_for_all()
                answer["init_seconds"] = round(time.time() - started, 3)
                for name in request.get("collectives", COLLECTIVES):
                    for size in request["sizes"]:
                        answer["results"].append(job.run(name, size))
        finally:
            communicator.destroy()
    answer["log"] = _facts(os.environ.get("NCCL_DEBUG_FILE", ""))
    return answer


def _join(nccl, world, identity, rank):
    """CuPy 14 takes the id as bytes, older releases as a tuple of signed numbers."""
    try:
        return nccl.NcclCommunicator(world, bytes(value & 0xFF for value in identity), rank)
    except TypeError:
        return nccl.NcclCommunicator(world, tuple(identity), rank)


def _facts(path):
    """What NCCL said of its transports and algorithms."""
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


class Job:
    """One rank's buffers and communicator."""

    def __init__(self, gpu, communicator, nccl, rank, world, out, into, barrier):
        self.gpu, self.communicator, self.nccl = gpu, communicator, nccl
        self.rank, self.world, self.out, self.into, self.barrier = rank, world, out, into, barrier

    def wait_for_all(self):
        self._barrier()
        self.gpu.synchronize()

    def _barrier(self):
        self.communicator.allReduce(self.barrier, self.barrier, 1, FLOAT, SUM, self.gpu.stream.ptr)

    def run(self, name, size):
        """Check once, then time: algorithm bandwidth is size over time, bus bandwidth what a link carries."""
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

    def _agreed(self, seconds):
        """The slowest rank's figure on all ranks: each must issue the same number of calls."""
        value = numpy.array([seconds], dtype=numpy.float32)
        stream = self.gpu.stream.ptr
        runtime.memcpyAsync(self.barrier, value.ctypes.data, 4, runtime.memcpyHostToDevice, stream)
        self.communicator.allReduce(self.barrier, self.barrier, 1, FLOAT, MAX, stream)
        runtime.memcpyAsync(value.ctypes.data, self.barrier, 4, runtime.memcpyDeviceToHost, stream)
        self.gpu.synchronize()
        return float(value[0])

    def _issue(self, name, count, per_rank):
        stream = self.gpu.stream.ptr
        if name == "all_reduce":
            self.communicator.allReduce(self.out, self.into, count, FLOAT, SUM, stream)
        elif name == "all_gather":
            self.communicator.allGather(self.out, self.into, per_rank, FLOAT, stream)
        else:
            self.communicator.reduceScatter(self.out, self.into, per_rank, FLOAT, SUM, stream)

    def _seconds(self, name, count, per_rank, times):
        """All ranks leave one barrier on the GPU, so no host's delay is measured."""
        self._issue(name, count, per_rank)
        self._barrier()
        return self.gpu.seconds(lambda: self._issue(name, count, per_rank), times)

    def _check(self, name, count, per_rank):
        gpu = self.gpu
        u64 = numpy.uint64
        runtime.memsetAsync(self.into, 0xFF, count * 4, gpu.stream.ptr)
        gpu.launch("rank_values", count, u64(self.out), u64(count), u64(self.rank))
        self._issue(name, count, per_rank)
        with gpu.counters(2) as counters:
            wrong = u64(counters.at(0))
            if name == "all_reduce":
                gpu.launch("count_wrong_sum", count, u64(self.into), u64(count), u64(0), u64(self.world), wrong)
            elif name == "all_gather":
                gpu.launch("count_wrong_gather", count, u64(self.into), u64(per_rank), u64(self.world), wrong)
            else:
                gpu.launch(
                    "count_wrong_sum",
                    per_rank,
                    u64(self.into),
                    u64(per_rank),
                    u64(self.rank * per_rank),
                    u64(self.world),
                    wrong,
                )
            return counters.read()[0]
