"""CUDA without a framework (context, libraries, PTX, cuDNN, a program that nvcc compiles), and by CuPy on every GPU."""

import re
from collections.abc import Callable
from typing import Any

from gpusetup.drive.causes import counted
from gpusetup.matrix.load import matrix
from gpusetup.model.verdict import Blame, Finding, Item
from gpusetup.verify.answers import explain, failed_item
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check, from_items, in_packages
from gpusetup.versions import nv


def items_of(machine: Machine, part: str, judge: Callable[[dict[str, Any]], tuple[bool, str]]) -> list[Item]:
    """Return an item for each GPU on one part of the smoke test; `judge` judges answers without an error."""
    found = []
    for key, worker in machine.workers.items():
        subject = f"GPU {key}"
        if "error" in worker.get("open", {"error": ""}):
            found.append(Item(subject, "skip", "not run: it could not be opened"))
            continue
        smoke = worker.get("smoke", {})
        answer = smoke.get(part) if "error" not in smoke else smoke
        if not isinstance(answer, dict):
            found.append(Item(subject, "skip", "not run: the test ended before it"))
        elif "error" in answer:
            found.append(failed_item(subject, answer, busy=machine.beside_job(key)))
        else:
            well, text = judge(answer)
            found.append(Item(subject, "pass" if well else "fail", text))
    return found


@check("cuda.context", "CUDA opens every GPU", needs=("gpu", "python"), took="workers/*/open")
def cuda_context(machine: Machine) -> Finding:
    """A CUDA context can be created on every GPU.

    Here a broken machine fails although nvidia-smi shows nothing: error 802 without fabric manager, 999 without
    nvidia-uvm, 35 with a driver that is older than the runtime, 100 or 46 with a missing GPU, 2 with full memory.

    To do: the text names the cause; `gpusetup doctor` shows what to do.
    """
    items = []
    for key, worker in machine.workers.items():
        answer = worker.get("open")
        if answer is None:
            items.append(Item(f"GPU {key}", "skip", "not run (see python.environment)"))
        elif "error" in answer:
            full = answer["error"] == "out-of-memory" and machine.beside_job(key)
            text = "another job uses all its memory: nothing could run" if full else explain(answer)
            blame: Blame = "job" if full else "driver"
            items.append(Item(f"GPU {key}", "fail", text, answer.get("status"), blame=blame))
        else:
            items.append(Item(f"GPU {key}", "pass", str(answer.get("name"))))
    names = {str(machine.opened(key).get("name")) for key in machine.workers}
    return from_items(items, f"{len(items)} x {', '.join(sorted(names))}", nothing="not run: no worker was started")


_FOR_CUDA = re.compile(r"(?:nvidia-.*-cu|cupy-cuda|jax-cuda)(\d\d)(?:x|-plugin)?")


def _version(number: int | None) -> str:
    return f"{number // 1000}.{number % 1000 // 10}" if number else "unknown"


@check(
    "cuda.libraries",
    "One copy of every CUDA library",
    needs=("gpu", "python", "context"),
    took="workers/*/smoke/libraries",
)
def cuda_libraries(machine: Machine) -> Finding:
    """One copy of each CUDA library is loaded, of one CUDA major, and the driver is new enough for the runtime.

    Two copies of NCCL or NVRTC (the system's and a wheel's, or wheels for CUDA 12 beside those for 13) give undefined
    symbols and hangs that look like anything but this. The versions of runtime, driver, NVRTC and NCCL and the files
    that were really loaded are reported; two copies are named. Packages for two CUDA majors in one environment are a
    warning even while one copy is loaded.

    To do: uninstall the packages of the other CUDA major; clear LD_LIBRARY_PATH.
    """
    told = {f"CuPy on GPU {key}": worker.get("smoke", {}).get("libraries") for key, worker in machine.workers.items()}
    told |= {name: machine.sections[name] for name in ("torch", "tensorflow", "jax") if name in machine.sections}
    processes = {name: answer for name, answer in told.items() if isinstance(answer, dict) and answer.get("loaded")}
    first = next((answer for name, answer in processes.items() if name.startswith("CuPy")), None)
    if first is None:
        return Finding("skip", "not checked: the smoke test ended earlier")
    for name, answer in processes.items():
        for library, paths in answer["loaded"].items():
            if len(paths) > 1:
                text = f"{name} has {len(paths)} copies of {library}: {' and '.join(paths[:2])}"
                return Finding("fail", text, len(paths), 1, 1, "copies", blame="stack")
    driver, runtime = first.get("driver_cuda"), first.get("runtime_cuda")
    versions = f"runtime {_version(runtime)}, driver up to {_version(driver)}"
    if driver and runtime and driver // 1000 < runtime // 1000:
        text = f"{versions}: the driver is too old for this major version of CUDA"
        return Finding("fail", text, _version(driver), _version(runtime))
    packages = (next(iter(machine.workers.values())).get("hello") or {}).get("packages") or {}
    majors = sorted({match.group(1) for name in packages if (match := _FOR_CUDA.fullmatch(name))})
    if len(majors) > 1:
        text = f"{versions}; packages for CUDA {' and '.join(majors)} are installed side by side"
        return Finding("warn", text, len(majors), 1, blame="stack")
    minor = driver and runtime and driver < runtime
    nccl = first.get("nccl")
    text = (
        versions
        + (" (minor-version compatibility)" if minor else "")
        + (f", NCCL {nccl // 10000}.{nccl % 10000 // 100}.{nccl % 100}" if nccl else "")
    )
    unread = [name for name in told if name not in processes]
    text += "; one copy of each" + (f", not looked for in {', '.join(unread[:4])}" if unread else "")
    return Finding("pass", text, _version(runtime), _version(driver))


_TOO_NEW = 222


@check("cuda.ptx", "The driver compiles PTX", needs=("gpu", "python", "context"), took="workers/*/smoke/ptx")
def cuda_ptx(machine: Machine) -> Finding:
    """The driver compiles PTX: that of this NVRTC, and every version up to that of the driver's own CUDA.

    With a toolkit newer than the driver (minor-version compatibility) machine code runs and newer PTX does not: a
    program that hands the driver PTX (Numba without pynvjitlink, `nvcc -arch=compute_NN`, NVRTC with compute_NN) stops
    with CUDA error 222. CuPy, Triton and `torch.compile` hand over machine code and work, so this is a warning.

    The highest version that the driver takes is found by loading an empty kernel of each version.

    To do: for such programs, a driver of the toolkit's own branch or newer, or an older toolkit.
    """
    found, versions = [], set()
    for item, (key, worker) in zip(items_of(machine, "ptx", _compiled), machine.workers.items(), strict=True):
        smoke = worker.get("smoke", {})
        versions.add(str(smoke.get("ptx", {}).get("ptx_version")))
        found.append(_with_highest(item, key, smoke))
    highest = {version for worker in machine.workers.values() if (version := _highest(worker.get("smoke", {})))}
    up_to = f"; the driver takes PTX up to {min(highest, key=nv)}" if highest else ""
    return from_items(found, f"PTX {', '.join(sorted(versions - {'None'}))} compiled and run{up_to}")


def _compiled(answer: dict[str, Any]) -> tuple[bool, str]:
    return answer.get("wrong") == 0, "" if answer.get("wrong") == 0 else f"{answer.get('wrong')} wrong elements"


def _highest(smoke: dict[str, Any]) -> str | None:
    found = smoke.get("ptx_versions", {}).get("highest")
    return str(found) if found else None


def _with_highest(item: Item, key: str, smoke: dict[str, Any]) -> Item:
    """Return the item, corrected by the highest PTX version: PTX that is only newer than the driver is a warning."""
    sweep, highest = smoke.get("ptx_versions", {}), _highest(smoke)
    if "error" in sweep and item.verdict == "pass":
        return Item(f"GPU {key}", "warn", f"its highest PTX version is not known: {explain(sweep)}")
    if highest is None:
        return item
    if item.verdict == "fail" and smoke.get("ptx", {}).get("status") == _TOO_NEW:
        text = (
            f"this NVRTC writes newer PTX than the driver compiles (up to {highest}): programs that hand it PTX stop "
            "with error 222; Triton, torch.compile and CuPy work"
        )
        return Item(f"GPU {key}", "warn", text)
    expected = _promised(smoke.get("libraries", {}).get("driver_cuda"))
    if item.verdict == "pass" and expected is not None and nv(highest) < nv(expected[1]):
        text = f"compiles PTX up to {highest}, where its CUDA {expected[0]} means {expected[1]}"
        return Item(f"GPU {key}", "warn", text, highest, expected[1])
    return item


def _promised(driver_cuda: int | None) -> tuple[str, str] | None:
    """Return a driver's CUDA release and its PTX version; None if the matrix does not list it."""
    minor = _version(driver_cuda)
    ptx = next((row.ptx for row in matrix().cuda.toolchains if row.minor == minor), "")
    return (minor, ptx) if ptx else None


@check("cudnn.library", "The host's own cuDNN loads", needs=("gpu",), took="cudnn", asked=in_packages("cudnn"))
def cudnn_library(machine: Machine) -> Finding:
    """The host's own cuDNN can be loaded and opens the GPU: what programs outside a Python environment use.

    Judged if the loader finds a cuDNN, or if the host's record has its packages; then its version must be the recorded
    one. If it loads but cannot open the GPU, no GPU is usable (see cuda.context), or its parts differ in version.

    To do: install the packages again (`gpusetup apply`); remove copies of libcudnn from LD_LIBRARY_PATH and /usr/local.
    """
    answer, packaged = machine.sections.get("cudnn"), machine.wanted.packages("cudnn")
    if not isinstance(answer, dict):
        if packaged:
            return Finding("fail", "the record has cuDNN's packages, but the loader finds no libcudnn")
        return Finding("skip", "no cuDNN is installed on the system")
    if answer.get("error") == "load":
        return Finding("fail", f"it cannot be loaded: {answer.get('message')}")
    if answer.get("error") == "open":
        version = cudnn_version(int(answer.get("version") or 0))
        return Finding("fail", f"cuDNN {version} loads but cannot open the GPU: {answer.get('message')}")
    if answer.get("error"):
        return Finding("fail", explain(answer))
    version = cudnn_version(int(answer.get("version") or 0))
    wanted = machine.wanted.version("cudnn") if packaged else None
    if wanted is not None and wanted.split(".")[:3] != version.split("."):
        where = ", ".join((answer.get("loaded") or {}).get("libcudnn") or ())
        text = f"cuDNN {version} is loaded, {wanted} is on record" + (f": {where}" if where else "")
        return Finding("fail", text, version, wanted)
    return Finding("pass", f"cuDNN {version} opens the GPU", version, wanted)


def cudnn_version(number: int) -> str:
    """Return 9.28.0 for 92800; up to cuDNN 8 a thousand is a major: 8.9.7 for 8907."""
    unit = 10000 if number >= 90000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


@check("nvcc.program", "nvcc's program runs", needs=("gpu",), took="nvcc", asked=in_packages("cuda"))
def nvcc_program(machine: Machine) -> Finding:
    """The toolkit's own path: nvcc compiles a small program for these GPUs, and it runs right on each.

    Judged when a toolkit is installed: where the request says, in /usr/local/cuda, or as the distribution's own
    packages. The toolkit's version and the driver's are reported. Of several toolkits side by side each is tried.

    To do: install the host compiler that this toolkit supports; name the toolkit's folder.
    """
    others = {name: told for name, told in machine.sections.items() if name.startswith("nvcc-")}
    answer = machine.sections.get("nvcc")
    first = _judged(machine, answer)
    if not others or first.verdict == "skip":
        return first
    found = {"default": first, **{name.removeprefix("nvcc-"): _judged(machine, told) for name, told in others.items()}}
    items = [
        Item(f"CUDA {name}", one.verdict, "" if one.verdict == "pass" else one.text) for name, one in found.items()
    ]
    return from_items(items, f"{first.text}; beside it CUDA {', '.join(sorted(found)[:-1])}")


def too_few(title: str, items: list[Item], machine: Machine, why: str = "") -> Finding | None:
    """Return a failure if a program sees fewer GPUs than the driver; None if not, or if a GPU is in MIG mode."""
    if len(items) >= machine.shown or any(map(machine.mig, machine.gpus)):
        return None
    text = f"{title} sees {len(items)} of {counted(machine.shown, 'GPU')}{why}"
    return Finding("fail", text, len(items), machine.shown)


def _judged(machine: Machine, answer: object) -> Finding:
    if not isinstance(answer, dict):
        if machine.wanted.packages("cuda"):
            return Finding("fail", "the lock has the CUDA toolkit's packages, but nvcc is missing")
        return Finding("skip", "no CUDA toolkit is installed")
    if answer.get("error") == "compile":
        last = [line for line in str(answer.get("message")).splitlines() if "error" in line.lower()] or str(
            answer.get("message")
        ).splitlines()
        return Finding("fail", f"nvcc could not compile: {last[0][:160] if last else 'it printed nothing'}")
    if answer.get("error") and not answer.get("gpus"):
        return Finding(
            "fail", f"the program did not run: {answer['error'] if 'message' not in answer else explain(answer)}"
        )
    items = []
    for gpu in answer.get("gpus", []):
        well = gpu.get("error") is None and gpu.get("wrong") == 0
        text = "" if well else str(gpu.get("error") or f"{gpu.get('wrong')} wrong elements")
        full = "MemoryAllocation" in text and gpu.get("index") in machine.busy
        items.append(Item(f"GPU {gpu.get('index')}", "pass" if well else "fail", text, blame="job" if full else ""))
    compiled = answer.get("compile_seconds")
    text = f"CUDA {_version(answer.get('runtime_cuda'))}, compiled in {compiled} s, correct on every GPU"
    return too_few("the program", items, machine) or from_items(items, text)


@check("gpu.memory", "Memory keeps a pattern", needs=("gpu", "python", "context"), took="workers/*/smoke/memory")
def gpu_memory(machine: Machine) -> Finding:
    """Memory keeps what is written: a pattern over up to 4 GiB, and its complement, read back on the GPU.

    A GPU in use by somebody else gets 64 MiB. The whole memory is a matter of `--level stress`.

    To do: reset the GPU, run `--level stress`; exchange it when words change again.
    """
    sizes = [worker.get("smoke", {}).get("memory", {}).get("bytes", 0) for worker in machine.workers.values()]
    return from_items(
        items_of(machine, "memory", _kept), f"{min(sizes, default=0) / 2**30:.3g} GiB or more, twice, on every GPU"
    )


def _kept(answer: dict[str, Any]) -> tuple[bool, str]:
    well = answer.get("wrong") == 0 and answer.get("bytes", 0) > 0
    return well, "" if well else f"{answer.get('wrong')} of {answer.get('bytes', 0) // 8} words changed"


@check(
    "cupy.elementwise",
    "CuPy's own kernels compile",
    needs=("gpu", "python", "context"),
    took="workers/*/smoke/elementwise",
)
def cupy_elementwise(machine: Machine) -> Finding:
    """CuPy's own operations work: their kernels include CUDA's headers, a RawKernel need not.

    `cannot open source file "cuda_fp16.h"` is what a CuPy wheel says when neither a toolkit nor NVIDIA's header wheels
    are there.

    To do: install `nvidia-cuda-runtime` and `nvidia-cuda-cccl` wheels of the same CUDA major, or the toolkit.
    """
    return from_items(items_of(machine, "elementwise", _equal), "integer and half-precision results are correct")


def _equal(answer: dict[str, Any]) -> tuple[bool, str]:
    for got, expected in (("sum", "expected"), ("half", "expected_half")):
        if answer.get(got) is None or answer[got] != answer.get(expected):
            return False, f"{got} is {answer.get(got)}, not {answer.get(expected)}"
    return True, ""


@check(
    "cupy.kernel", "A CuPy kernel computes correctly", needs=("gpu", "python", "context"), took="workers/*/smoke/kernel"
)
def cupy_kernel(machine: Machine) -> Finding:
    """The CuPy kernel smoke test: NVRTC compiles a RawKernel, every GPU runs it, every element equals NumPy's.

    The kernel is compiled each time (caches are bypassed), over a size that fills no block exactly, into memory
    that was poisoned before, without contraction of products and sums, so that the comparison is exact.

    To do: `smoke.py` of the role runs alone: `/opt/gpusetup/bin/python smoke.py`.
    """
    found = items_of(machine, "kernel", _right)
    return from_items(found, "compiled by NVRTC, every element correct on every GPU")


def _right(answer: dict[str, Any]) -> tuple[bool, str]:
    wrong, elements, first = answer.get("wrong"), answer.get("elements", 0), answer.get("first") or {}
    if wrong == 0 and elements > 0:
        return True, f"{elements} elements"
    example = f"element {first.get('index')} is {first.get('got')}, not {first.get('expected')}"
    return False, f"{wrong} of {elements} elements have wrong values; {example}"


FORMATS = ("float64", "float32", "float16")


@check("cupy.cublas", "cuBLAS computes correctly", needs=("gpu", "python", "context"), took="workers/*/smoke/cublas")
def cupy_cublas(machine: Machine) -> Finding:
    """cuBLAS products in double, single and half precision agree with NumPy's double within rounding.

    To do: a wrong product on one GPU of many is hardware: run `--level stress`; on all it is a library mix
    (cuda.libraries).
    """  # noqa: D403 - the library's name
    return from_items(items_of(machine, "cublas", _close), "products agree with NumPy in " + ", ".join(FORMATS))


def _close(answer: dict[str, Any]) -> tuple[bool, str]:
    for name in FORMATS:
        part = answer.get(name) or {}
        error, limit = part.get("error"), part.get("limit")
        if error is None or limit is None or not error <= limit:  # NaN is never below
            return False, f"{name} is off by {error}, {limit} would be rounding error"
    return True, ""
