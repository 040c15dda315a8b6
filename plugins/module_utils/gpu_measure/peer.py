"""The whole peer-to-peer matrix: access, write, read, both ways at once, and the data that arrived.

As nvbandwidth does it: the copy engine of the source writes, that of the destination reads. One pair at a time, since
pairs that share links would disturb each other.
"""

import contextlib

import cupy
import numpy
from cupy.cuda import runtime
from gpu import Gpu, free_bytes

PASSES = 2


def matrix(state, request):
    """Rows are sources, columns destinations; GB/s of the better pass, both passes kept."""
    gpus = [
        state["gpu"] if runtime.deviceGetByPCIBusId(bus) == state["gpu"].ordinal else Gpu.at(bus)
        for bus in request["bus_ids"]
    ]
    number = len(gpus)
    gentle = bool(request.get("gentle"))
    size = min([16 << 20 if gentle else 1 << 30] + [free_bytes(gpu) // 4 for gpu in gpus]) & ~0xFFFF
    times = 2 if gentle else 5
    empty = [[None] * number for _ in range(number)]
    answer = {
        "bytes": size,
        "access": [list(row) for row in empty],
        "wrong": [list(row) for row in empty],
        "write": [list(row) for row in empty],
        "read": [list(row) for row in empty],
        "both": [list(row) for row in empty],
    }
    with contextlib.ExitStack() as stack:
        ours = [(stack.enter_context(gpu.memory(size)), stack.enter_context(gpu.memory(size))) for gpu in gpus]
        for i, source in enumerate(gpus):
            with source.device:
                source.launch("fill", size // 8, numpy.uint64(ours[i][0]), numpy.uint64(size // 8), numpy.uint64(i + 1))
                source.synchronize()
                for j, target in enumerate(gpus):
                    if i != j:
                        answer["access"][i][j] = bool(runtime.deviceCanAccessPeer(source.ordinal, target.ordinal))
                        if answer["access"][i][j]:
                            _enable(target.ordinal)
        for i, source in enumerate(gpus):
            for j, target in enumerate(gpus):
                if i == j:
                    continue
                pair = Pair(source, target, ours[i], ours[j], size, answer["access"][i][j])
                answer["write"][i][j] = pair.one_way(source, times)
                answer["read"][i][j] = pair.one_way(target, times)
                answer["wrong"][i][j] = pair.wrong(i + 1)
                if i < j:
                    answer["both"][i][j] = answer["both"][j][i] = pair.both_ways(times)
    return answer


def _enable(ordinal):
    try:
        runtime.deviceEnablePeerAccess(ordinal)
    except runtime.CUDARuntimeError as failure:
        if failure.status != 704:  # already enabled
            raise


class Pair:
    """Copies between two GPUs; without peer access the driver stages them through the host."""

    def __init__(self, source, target, mine, theirs, size, access):
        self.source, self.target, self.size, self.access = source, target, size, access
        self.out, self.into = mine[0], theirs[1]  # source's data -> target's second buffer
        self.back_out, self.back_into = theirs[0], mine[1]

    def copy(self, stream, back=False):
        source, target = (self.back_out, self.back_into) if back else (self.out, self.into)
        if self.access:
            runtime.memcpyAsync(target, source, self.size, runtime.memcpyDefault, stream.ptr)
        else:
            ends = (self.source.ordinal, self.target.ordinal) if back else (self.target.ordinal, self.source.ordinal)
            runtime.memcpyPeerAsync(target, ends[0], source, ends[1], self.size, stream.ptr)

    def one_way(self, engine, times):
        """Bandwidth with the copies issued on this GPU's stream."""
        with engine.device:
            self.copy(engine.stream)
            return [
                round(self.size / engine.seconds(lambda: self.copy(engine.stream), times) / 1e9, 2)
                for _ in range(PASSES)
            ]

    def both_ways(self, times):
        """Total of two writes in opposite directions that start together."""
        results = []
        for _ in range(PASSES):
            events = []
            with self.source.device:
                begin, end_source = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record(self.source.stream)
            with self.target.device:
                end_target = cupy.cuda.Event()
                begin_target = cupy.cuda.Event()
                self.target.stream.wait_event(begin)
                begin_target.record(self.target.stream)
            for _ in range(times):
                with self.source.device:
                    self.copy(self.source.stream)
                with self.target.device:
                    self.copy(self.target.stream, back=True)
            with self.source.device:
                end_source.record(self.source.stream)
            with self.target.device:
                end_target.record(self.target.stream)
            end_source.synchronize()
            end_target.synchronize()
            events = [
                cupy.cuda.get_elapsed_time(begin, end_source),
                cupy.cuda.get_elapsed_time(begin_target, end_target),
            ]
            results.append(round(sum(self.size * times / (milliseconds / 1e3) for milliseconds in events) / 1e9, 2))
        return results

    def wrong(self, seed):
        """Words at the target that differ from what the source holds, after one fresh copy over poison."""
        with self.target.device:
            runtime.memsetAsync(self.into, 0, self.size, self.target.stream.ptr)
            self.copy(self.target.stream)
            words = self.size // 8
            with self.target.counters(2) as counters:
                self.target.launch(
                    "count_wrong",
                    words,
                    numpy.uint64(self.into),
                    numpy.uint64(words),
                    numpy.uint64(seed),
                    numpy.uint64(counters.at(0)),
                    numpy.uint64(counters.at(1)),
                )
                return counters.read()[0]
