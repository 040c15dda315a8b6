"""One GPU as the checks use it: device, stream, compiled kernels, timing, memory.

Runs in the interpreter that has CuPy. Device memory comes from cudaMalloc (never managed memory) and is freed again.
"""

import contextlib
import os
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

os.environ["CUPY_CACHE_IN_MEMORY"] = "1"  # a kernel from the disk cache would not test NVRTC

import cupy
import kernels
import numpy
from cupy.cuda import runtime

BLOCK = 256
ATTRIBUTES = {"clock_khz": 13, "memory_clock_khz": 36, "memory_bus_bits": 37, "multiprocessors": 16, "l2_bytes": 38}


class Gpu:
    """The device with this CUDA ordinal; use as a context to make it current."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.device = cupy.cuda.Device(ordinal)
        self.device.use()
        runtime.free(0)  # creates the primary context, which raises errors 802, 999 or 35
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._module: Any = None

    @classmethod
    def at(cls, bus_id: Optional[str]) -> "Gpu":
        """Return the device at this PCI bus id; a MIG slice has none and is device 0 of its process."""
        return cls(runtime.deviceGetByPCIBusId(bus_id) if bus_id else 0)

    def properties(self) -> Dict[str, Any]:
        """Return name, compute capability, memory and clocks as the runtime reports them."""
        raw = runtime.getDeviceProperties(self.ordinal)
        name = raw["name"]
        answer: Dict[str, Any] = {
            "name": name.decode("utf-8", "replace") if isinstance(name, bytes) else name,
            "compute_capability": "{}.{}".format(raw["major"], raw["minor"]),
            "memory_bytes": raw["totalGlobalMem"],
        }
        for key, number in ATTRIBUTES.items():
            try:
                answer[key] = runtime.deviceGetAttribute(number, self.ordinal)
            except Exception:
                answer[key] = None
        with self.device:
            answer["free_bytes"] = runtime.memGetInfo()[0]
        return answer

    def compile(self) -> float:
        """Compile the kernels for this device; return the seconds it took."""
        started = time.monotonic()
        # A unique comment defeats every cache; without contraction the results equal NumPy's bit for bit.
        source = f"// {os.getpid()} {started:f}\n" + kernels.SOURCE
        self._module = cupy.RawModule(code=source, options=("--fmad=false",), backend="nvrtc")
        self._module.get_function("fill")
        return time.monotonic() - started

    def kernel(self, name: str) -> Any:
        """Return one of our kernels, compiling them first if needed."""
        if self._module is None:
            self.compile()
        return self._module.get_function(name)

    def launch(self, name: str, count: int, *arguments: Any, exact: bool = False) -> None:
        """Launch a kernel over `count` elements, in at most 65,536 blocks unless `exact`; ints are passed as u64."""
        blocks = (count + BLOCK - 1) // BLOCK
        if not exact:
            blocks = min(blocks, 65536)
        values = tuple(numpy.uint64(value) if isinstance(value, int) else value for value in arguments)
        self.kernel(name)((max(1, blocks),), (BLOCK,), values, stream=self.stream)

    def fill(self, pointer: int, words: int, seed: int) -> None:
        """Write the pattern of this seed."""
        self.launch("fill", words, pointer, words, seed)

    def wrong(self, pointer: int, words: int, seed: int) -> int:
        """Return how many words differ from the pattern of this seed."""
        with self.counters(2) as counters:
            self.launch("count_wrong", words, pointer, words, seed, counters.at(0), counters.at(1))
            return counters.read()[0]

    def fetch(self, pointer: int, count: int, kind: Any) -> Any:
        """Return elements of device memory as a NumPy array."""
        values = numpy.empty(count, dtype=kind)
        runtime.memcpyAsync(values.ctypes.data, pointer, values.nbytes, runtime.memcpyDeviceToHost, self.stream.ptr)
        self.synchronize()
        return values

    @contextlib.contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """Yield device memory, freed at the end."""
        with self.device:
            pointer = runtime.malloc(size)
        try:
            yield pointer
        finally:
            with self.device:
                runtime.free(pointer)

    @contextlib.contextmanager
    def counters(self, number: int) -> "Iterator[Counters]":
        """Yield zeroed 64-bit counters on the device."""
        with self.memory(8 * number) as pointer:
            runtime.memsetAsync(pointer, 0, 8 * number, self.stream.ptr)
            yield Counters(self, pointer, number)

    def seconds(self, work: Callable[[], object], times: int = 1) -> float:
        """Return the device time of one `work()`, by events around `times` repetitions enqueued together."""
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(self.stream)
        for _ in range(times):
            work()
        end.record(self.stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) / 1e3 / times

    def synchronize(self) -> None:
        self.stream.synchronize()


class Counters:
    """Counters that kernels add to."""

    def __init__(self, gpu: Gpu, pointer: int, number: int) -> None:
        self._gpu, self.pointer, self._number = gpu, pointer, number

    def at(self, index: int) -> int:
        return self.pointer + 8 * index

    def read(self) -> List[int]:
        return [int(value) for value in self._gpu.fetch(self.pointer, self._number, numpy.uint64)]


State = Dict[str, Gpu]
"""A worker's state between requests: its GPU as "gpu", once opened."""


def free_bytes(gpu: Gpu) -> int:
    with gpu.device:
        return int(runtime.memGetInfo()[0])
