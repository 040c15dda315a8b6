"""Measure the peer-to-peer matrix: access, write, read, both directions at once, and check the data that arrived.

As in nvbandwidth, the source's copy engine writes and the destination's reads. One pair at a time, since pairs that
share links would disturb each other.
"""

import contextlib
from typing import Any, Dict, List, NamedTuple, Tuple

import cupy
from cupy.cuda import runtime
from gpu import Gpu, State, free_bytes

PASSES = 2


def matrix(state: State, request: Dict[str, Any]) -> Dict[str, Any]:
    """Return matrices with sources as rows and destinations as columns, in GB/s of both passes."""
    gpus = [
        state["gpu"] if runtime.deviceGetByPCIBusId(bus) == state["gpu"].ordinal else Gpu.at(bus)
        for bus in request["bus_ids"]
    ]
    number = len(gpus)
    gentle = bool(request.get("gentle"))
    size = min([16 << 20 if gentle else 1 << 30] + [free_bytes(gpu) // 4 for gpu in gpus]) & ~0xFFFF
    times = 2 if gentle else 5
    answer: Dict[str, Any] = {"bytes": size}
    for name in ("access", "wrong", "write", "read", "both"):
        answer[name] = [[None] * number for _ in range(number)]
    with contextlib.ExitStack() as stack:
        ours = [(stack.enter_context(gpu.memory(size)), stack.enter_context(gpu.memory(size))) for gpu in gpus]
        for i, source in enumerate(gpus):
            with source.device:
                source.fill(ours[i][0], size // 8, i + 1)
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


def _enable(ordinal: int) -> None:
    try:
        runtime.deviceEnablePeerAccess(ordinal)
    except runtime.CUDARuntimeError as failure:
        if failure.status != 704:  # already enabled
            raise


class Pair(NamedTuple):
    """Copies between two GPUs; without peer access the driver stages them through the host."""

    source: Gpu
    target: Gpu
    mine: Tuple[int, int]  # the source's buffers: to send, to receive
    theirs: Tuple[int, int]
    size: int
    access: bool

    def copy(self, stream: Any, back: bool = False) -> None:
        out, into = (self.theirs[0], self.mine[1]) if back else (self.mine[0], self.theirs[1])
        if self.access:
            runtime.memcpyAsync(into, out, self.size, runtime.memcpyDefault, stream.ptr)
        else:
            ends = (self.source.ordinal, self.target.ordinal) if back else (self.target.ordinal, self.source.ordinal)
            runtime.memcpyPeerAsync(into, ends[0], out, ends[1], self.size, stream.ptr)

    def one_way(self, engine: Gpu, times: int) -> List[float]:
        """Return the bandwidth with copies issued on this GPU's stream."""
        with engine.device:
            self.copy(engine.stream)
            return [
                round(self.size / engine.seconds(lambda: self.copy(engine.stream), times) / 1e9, 2)
                for _ in range(PASSES)
            ]

    def both_ways(self, times: int) -> List[float]:
        """Return the total bandwidth of two writes in opposite directions that start together."""
        results = []
        for _ in range(PASSES):
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
            lengths = [
                cupy.cuda.get_elapsed_time(begin, end_source),
                cupy.cuda.get_elapsed_time(begin_target, end_target),
            ]
            results.append(round(sum(self.size * times / (milliseconds / 1e3) for milliseconds in lengths) / 1e9, 2))
        return results

    def wrong(self, seed: int) -> int:
        """Copy once over a cleared buffer; return how many words at the target are wrong."""
        with self.target.device:
            runtime.memsetAsync(self.theirs[1], 0, self.size, self.target.stream.ptr)
            self.copy(self.target.stream)
            return self.target.wrong(self.theirs[1], self.size // 8, seed)
