"""One GPU as the checks use it: the device, its stream, the compiled kernels, timing, plain memory.

Runs in the interpreter that holds CuPy. Device memory is taken with cudaMalloc (never managed memory) and given back.
"""

import contextlib
import os
import time

os.environ["CUPY_CACHE_IN_MEMORY"] = "1"  # a kernel from the disk cache would prove nothing about NVRTC

import cupy
import kernels
from cupy.cuda import runtime

BLOCK = 256
ATTRIBUTES = {"clock_khz": 13, "memory_clock_khz": 36, "memory_bus_bits": 37, "multiprocessors": 16, "l2_bytes": 38}


class Gpu:
    """The device with this CUDA ordinal; use as a context to make it current."""

    def __init__(self, ordinal):
        self.ordinal = ordinal
        self.device = cupy.cuda.Device(ordinal)
        self.device.use()
        runtime.free(0)  # creates the primary context: the moment at which errors 802, 999 or 35 show
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._module = None

    @classmethod
    def at(cls, bus_id):
        """The device at this PCI bus id; a MIG slice has none and is device 0 of its process."""
        return cls(runtime.deviceGetByPCIBusId(bus_id) if bus_id else 0)

    def properties(self):
        """Name, compute capability, memory and clocks as the runtime reports them."""
        raw = runtime.getDeviceProperties(self.ordinal)
        name = raw["name"]
        answer = {
            "name": name.decode() if isinstance(name, bytes) else name,
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

    def compile(self):
        """Compile the kernels for this device; return the seconds it took."""
        started = time.time()
        # A fresh comment defeats every cache; without contraction the results equal NumPy's bit for bit.
        source = f"// {os.getpid()} {started:f}\n" + kernels.SOURCE
        self._module = cupy.RawModule(code=source, options=("--fmad=false",), backend="nvrtc")
        self._module.get_function("fill")
        return time.time() - started

    def launch(self, name, count, *arguments, **how):
        """Launch a kernel over `count` elements (grid-stride kernels get at most 65,536 blocks)."""
        if self._module is None:
            self.compile()
        blocks = (count + BLOCK - 1) // BLOCK
        if not how.get("exact"):
            blocks = min(blocks, 65536)
        self._module.get_function(name)((max(1, blocks),), (BLOCK,), arguments, stream=self.stream)

    @contextlib.contextmanager
    def memory(self, size):
        """Plain device memory, freed at the end."""
        with self.device:
            pointer = runtime.malloc(size)
        try:
            yield pointer
        finally:
            with self.device:
                runtime.free(pointer)

    @contextlib.contextmanager
    def counters(self, number):
        """Zeroed 64-bit counters on the device, and how to read them."""
        with self.memory(8 * number) as pointer:
            runtime.memsetAsync(pointer, 0, 8 * number, self.stream.ptr)
            yield Counters(self, pointer, number)

    def seconds(self, work, times=1):
        """Device time of one `work()`, by events, over `times` repetitions enqueued together."""
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(self.stream)
        for _ in range(times):
            work()
        end.record(self.stream)
        end.synchronize()
        return cupy.cuda.get_elapsed_time(start, end) / 1e3 / times

    def synchronize(self):
        self.stream.synchronize()


class Counters:
    """Counters that kernels add to."""

    def __init__(self, gpu, pointer, number):
        self._gpu, self.pointer, self._number = gpu, pointer, number

    def at(self, index):
        return self.pointer + 8 * index

    def read(self):
        import numpy

        values = numpy.empty(self._number, dtype=numpy.uint64)
        runtime.memcpyAsync(
            values.ctypes.data, self.pointer, values.nbytes, runtime.memcpyDeviceToHost, self._gpu.stream.ptr
        )
        self._gpu.synchronize()
        return [int(value) for value in values]


def free_bytes(gpu):
    with gpu.device:
        return runtime.memGetInfo()[0]
