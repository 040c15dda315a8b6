"""The CuPy kernel smoke test: compile, launch and check a kernel on one GPU, then cuBLAS, PTX, memory and libraries.

`worker.py` asks for it; `python smoke.py [CUDA-ORDINAL]` runs it alone and prints its document.
"""

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Dict

import environment
import ptx_sweep

if TYPE_CHECKING:
    from gpu import Gpu, State  # needs CuPy; on a machine without it the answer must say so

ODD = (1 << 20) + 37  # not a multiple of any block size, so the last block is partly empty


def open_device(state: "State", request: Dict[str, Any]) -> Dict[str, Any]:
    """Create the context; the driver's own errors (802, 999, 35, 100, 46) appear here."""
    import cupy
    from cupy.cuda import runtime

    answer: Dict[str, Any] = {"driver_cuda": None, "runtime_cuda": None}
    try:
        answer["driver_cuda"] = runtime.driverGetVersion()
        answer["runtime_cuda"] = runtime.runtimeGetVersion()
    except Exception as failure:
        answer["version_error"] = str(failure)
    from gpu import Gpu

    state["gpu"] = gpu = Gpu.at(request.get("bus_id"))
    answer.update(gpu.properties())
    answer["ordinal"] = gpu.ordinal
    answer["devices"] = runtime.getDeviceCount()
    answer["cupy"] = cupy.__version__
    return answer


def smoke(state: "State", request: Dict[str, Any]) -> Dict[str, Any]:
    """Run all parts, each with its own answer: one that fails does not hide the next."""
    from worker import explain

    gpu = state["gpu"]
    gentle = bool(request.get("gentle"))
    answer: Dict[str, Dict[str, Any]] = {}
    for name, part in (
        ("kernel", kernel),
        ("elementwise", elementwise),
        ("ptx", ptx),
        ("ptx_versions", ptx_versions),
        ("cublas", cublas),
        ("memory", memory),
        ("libraries", libraries),
    ):
        started = time.monotonic()
        try:
            answer[name] = part(gpu, gentle)
        except Exception as failure:
            answer[name] = explain(failure)
        answer[name]["seconds"] = round(time.monotonic() - started, 3)
    return answer


def kernel(gpu: "Gpu", _gentle: bool) -> Dict[str, Any]:
    """Compile a RawKernel with NVRTC, run it, and compare every element with NumPy's."""
    import numpy
    from cupy.cuda import runtime

    compile_seconds = gpu.compile()
    generator = numpy.random.default_rng()
    x = generator.standard_normal(ODD).astype(numpy.float32)
    y = generator.standard_normal(ODD).astype(numpy.float32)
    expected = x * y + (numpy.arange(ODD) % 17).astype(numpy.float32)
    out = numpy.zeros_like(x)
    with gpu.memory(x.nbytes) as dx, gpu.memory(x.nbytes) as dy, gpu.memory(x.nbytes) as dout:
        to_device, to_host = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost
        runtime.memcpyAsync(dx, x.ctypes.data, x.nbytes, to_device, gpu.stream.ptr)
        runtime.memcpyAsync(dy, y.ctypes.data, x.nbytes, to_device, gpu.stream.ptr)
        runtime.memsetAsync(dout, 0xFF, x.nbytes, gpu.stream.ptr)  # NaN where the kernel does not write
        gpu.launch("multiply_add", ODD, dx, dy, dout, ODD, exact=True)
        runtime.memcpyAsync(out.ctypes.data, dout, x.nbytes, to_host, gpu.stream.ptr)
        gpu.synchronize()
    wrong = numpy.flatnonzero(~(out == expected))
    answer: Dict[str, Any] = {"elements": ODD, "wrong": int(wrong.size), "compile_seconds": round(compile_seconds, 3)}
    if wrong.size:
        first = int(wrong[0])
        answer["first"] = {"index": first, "got": float(out[first]), "expected": float(expected[first])}
    return answer


def elementwise(gpu: "Gpu", _gentle: bool) -> Dict[str, Any]:
    """Run CuPy's own kernels: they fail when CUDA's headers are missing."""
    import cupy

    with gpu.device:
        got = int(cupy.arange(10007, dtype=cupy.int64).sum())
        half = float((cupy.ones(64, dtype=cupy.float16) * 2).sum())
    return {"sum": got, "expected": 10006 * 10007 // 2, "half": half, "expected_half": 128.0}


def ptx(gpu: "Gpu", _gentle: bool) -> Dict[str, Any]:
    """Generate PTX with NVRTC and load it: fails when the toolkit is newer than the driver's JIT compiler."""
    import cupy
    import numpy
    from cupy_backends.cuda.libs import nvrtc

    answer: Dict[str, Any] = {"nvrtc": list(nvrtc.getVersion())}
    capability = gpu.device.compute_capability
    source = 'extern "C" __global__ void answer(int* out) { out[threadIdx.x] = 7 * threadIdx.x + 42; }'
    program = nvrtc.createProgram(source, "answer.cu", [], [])
    try:
        nvrtc.compileProgram(program, ["--gpu-architecture=compute_" + capability])
        text = nvrtc.getPTX(program)
    finally:
        nvrtc.destroyProgram(program)
    raw = text.encode() if isinstance(text, str) else text
    answer["ptx_version"] = next(
        (line.split()[1].decode() for line in raw.splitlines() if line.startswith(b".version")), None
    )
    with gpu.device:
        module = cupy.cuda.function.Module()
        module.load(raw)
        out = cupy.zeros(64, dtype=cupy.int32)
        module.get_function("answer")((1,), (64,), (out,))
        answer["wrong"] = int((out.get() != 7 * numpy.arange(64) + 42).sum())
    return answer


def ptx_versions(gpu: "Gpu", _gentle: bool) -> Dict[str, Any]:
    """Find the highest PTX version that this driver compiles."""
    import ctypes

    with gpu.device:
        return ptx_sweep.sweep(ctypes.CDLL(ptx_sweep.LIBRARY), gpu.device.compute_capability)


def cublas(gpu: "Gpu", _gentle: bool) -> Dict[str, Any]:
    """Compare products in double, single and half precision with NumPy's in double precision."""
    import cupy
    import numpy

    generator = numpy.random.default_rng()
    left, right = generator.standard_normal((384, 512)), generator.standard_normal((512, 256))
    answer: Dict[str, Any] = {}
    with gpu.device:
        for name, limit in (("float64", 1e-13), ("float32", 2e-6), ("float16", 2e-3)):
            a, b = left.astype(name), right.astype(name)
            exact = a.astype(numpy.float64) @ b.astype(numpy.float64)
            got = cupy.asarray(a) @ cupy.asarray(b)
            error = numpy.linalg.norm(got.get().astype(numpy.float64) - exact) / numpy.linalg.norm(exact)
            answer[name] = {"error": float(error), "limit": limit}
    return answer


def memory(gpu: "Gpu", gentle: bool) -> Dict[str, Any]:
    """Fill memory with a pattern, read it all back on the GPU."""
    from gpu import free_bytes

    size = min(64 << 20 if gentle else 4 << 30, free_bytes(gpu) // 2) & ~0xFFF
    words, seed = size // 8, int.from_bytes(os.urandom(8), "little")
    wrong = 0
    with gpu.memory(size) as block:
        for turn in (seed, seed ^ 0xFFFFFFFFFFFFFFFF):  # a second pattern
            gpu.fill(block, words, turn)
            wrong += gpu.wrong(block, words, turn)
    return {"bytes": size, "wrong": wrong}


def libraries(_gpu: "Gpu", _gentle: bool) -> Dict[str, Any]:
    """Return the versions, and the library files that were actually loaded."""
    from cupy.cuda import runtime

    answer: Dict[str, Any] = {"driver_cuda": runtime.driverGetVersion(), "runtime_cuda": runtime.runtimeGetVersion()}
    try:
        from cupy.cuda import nccl

        answer["nccl"] = nccl.get_version()
    except Exception as failure:
        answer["nccl"] = None
        answer["nccl_error"] = str(failure)[:300]
    answer["loaded"] = environment.loaded_libraries()
    return answer


def main() -> None:
    """Run alone: `python smoke.py [CUDA-ORDINAL]`."""
    from gpu import Gpu

    gpu = Gpu(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    answer = dict(gpu.properties(), smoke=smoke({"gpu": gpu}, {}))
    json.dump(answer, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
