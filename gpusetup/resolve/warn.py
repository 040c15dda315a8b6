"""Warnings about a stack that fits: ended support, limits of a compatibility mode, what could fail on this GPU.

Where a fact comes from is not a warning; it is one of the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from gpusetup.matrix.security import floor, vulnerable
from gpusetup.model.request import PACKAGES
from gpusetup.resolve import rules
from gpusetup.resolve.answer import relations
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import branch_of
from gpusetup.resolve.hardware import code_of, nccl_runs, uncovered_libraries
from gpusetup.resolve.naming import label, only_module
from gpusetup.resolve.package_sentences import python_warnings
from gpusetup.resolve.preferences import best
from gpusetup.resolve.space import FRAMEWORKS
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpusetup.matrix.gpus import GpuKind
    from gpusetup.matrix.load import Matrix
    from gpusetup.resolve.domains import (
        CudaValue,
        CudnnValue,
        CupyValue,
        DriverValue,
        NcclValue,
        TensorflowValue,
        TorchValue,
        Value,
    )
    from gpusetup.resolve.space import Space

_EVERY_TRITON = "7.5"
"""Every release of Triton supports this capability and newer ones, so its file need not be read for them."""


def warnings_about(space: Space, solution: Mapping[str, Value]) -> tuple[str, ...]:
    """Return every warning about a stack, one sentence each."""
    found = [*_driver(space, cast("DriverValue", solution["driver"])), *_relations(space, solution)]
    if "cuda" in solution and "cupy" in solution:
        found += _cupy(cast("CupyValue", solution["cupy"]), cast("CudaValue", solution["cuda"]))
    if "cudnn" in solution:
        found += _cudnn(space, cast("CudnnValue", solution["cudnn"]))
    if "nccl" in solution:
        found += _nccl(space, cast("NcclValue", solution["nccl"]))
    if "torch" in solution:
        found += _torch(space, cast("TorchValue", solution["torch"]))
    if "tensorflow" in solution:
        found += _tensorflow(cast("TensorflowValue", solution["tensorflow"]))
    found += _code(space, solution)
    if any(name in solution for name in PACKAGES):
        from gpusetup.resolve.package_sentences import package_warnings

        found += package_warnings(space, solution)
    found += python_warnings(space, solution)
    return tuple(dict.fromkeys(found))


def unknown_driver(version: str, matrix: Matrix) -> str:
    """Return a warning about a driver that the matrix does not know, else an empty string."""
    branch = branch_of(matrix, version)
    if branch is None or any(version == item.version for item in matrix.driver.versions):
        return ""
    own = nv(version).major
    nearest = "" if own == branch.branch else f", and R{own} neither: judged as R{branch.branch}"
    return f"driver {version} is not in the matrix{nearest}; its branch decides"


def _driver(space: Space, value: DriverValue) -> Iterator[str]:
    branch = value.branch
    if not value.known:
        yield unknown_driver(value.version, space.matrix)
    if value.ended:
        day = f" ({branch.eol})" if branch.eol != "unknown" else ""
        yield f"driver branch R{branch.branch} is past its end of life{day}; {_instead(space, value)}"
    if known := vulnerable(space.matrix, "driver", value.version, floor(space.matrix)):
        there = space.request.installed_driver is not None
        way = "gpusetup apply --upgrade" if there else f"ask for driver=={known.fixed}"
        yield f"driver {value.version} has {known}; {known.fixed} ends what is known of R{branch.branch}: {way}"
    if space.request.driver_elsewhere is not None:
        whose = "Windows" if space.request.driver_elsewhere == "wsl" else "the container's host"
        yield f"the driver is that of {whose}: install only the Python packages here (--install pip)"
    flavour = space.request.installed_module
    wrong = next((only for gpu in space.gpus if (only := only_module(gpu)) and flavour not in (None, value.module)), "")
    if wrong:
        yield f"{wrong}: the {flavour} ones that are installed must be removed"
    for gpu in space.gpus:
        if gpu.min_driver is not None and value.number < nv(gpu.min_driver):
            yield f"NVIDIA lists {gpu.label} from driver {gpu.min_driver}; {value.version} is older"


def _instead(space: Space, value: DriverValue) -> str:
    """Return what to do about a branch past its end of life."""
    request = space.request
    if value.version in (request.driver, request.installed_driver):
        return "plan its replacement"
    if request.driver_candidates is not None:
        free = best(build(space.matrix, msgspec.structs.replace(request, driver_candidates=None)))
        other = cast("DriverValue", free["driver"]) if free is not None else value
        if not other.ended:
            return (
                f"this host's repositories have no supported branch that fits; NVIDIA's has R{other.branch.branch}: "
                "gpusetup_source=nvidia"
            )
    return "no supported branch fits this request"


def _relations(space: Space, solution: Mapping[str, Value]) -> Iterator[str]:
    driver = cast("DriverValue", solution["driver"])
    for name, relation in relations(space, solution).items():
        minor = space.minor(solution[name])
        what = f"CUDA {minor}" + ("" if name == "cuda" else f" inside {name}")
        if relation == "minor-version":
            yield (
                f"{what} runs on R{driver.branch.branch} by minor-version compatibility: a program that hands the "
                f"driver PTX (Numba without pynvjitlink, nvcc -arch=compute_NN) fails with error 222; {_work(space)}"
            )
        elif relation == "forward":
            yield (
                f"{what} needs cuda-compat-{minor.replace('.', '-')} first on the library path; remove it when the "
                f"driver is upgraded, or CUDA fails with error 803"
            )
            if any(gpu.forward_compatible is None for gpu in space.gpus) or not space.gpus:
                yield "forward compatibility works only on data-centre GPUs; this host's GPU is unknown"


def _work(space: Space) -> str:
    """Return which Python compilers still work because they give the driver machine code."""
    if any(_below_triton(space, gpu) for gpu in space.gpus):
        return "CuPy works"
    return "Triton, torch.compile and CuPy work"


def _below_triton(space: Space, gpu: GpuKind) -> str:
    """Return the lowest compute capability that Triton supports if the GPU is below it, else an empty string."""
    if nv(gpu.cc) >= nv(_EVERY_TRITON):
        return ""
    floor = next((item.cc_min for item in space.matrix.package("triton").releases if item.cc_min), None)
    return floor if floor is not None and nv(gpu.cc) < nv(floor) else ""


def _cupy(cupy: CupyValue, cuda: CudaValue) -> Iterator[str]:
    if cuda.release.minor not in cupy.release.cuda:
        yield f"CuPy {cupy.version} was not tested with CUDA {cuda.release.minor}"


def _cudnn(space: Space, value: CudnnValue) -> Iterator[str]:
    """A newer cuDNN drops the oldest GPUs first, so another version's row is doubtful only for those."""
    row = value.row
    oldest = [gpu for gpu in space.gpus if row.cc_min is not None and nv(gpu.cc).major <= nv(row.cc_min).major]
    if value.leaning and oldest:
        yield (
            f"cuDNN {value.version} is newer than NVIDIA's support matrix (up to {row.version}), so its support of "
            f"{oldest[0].label} is not confirmed; gpusetup verify tests it"
        )


def _nccl(space: Space, value: NcclValue) -> Iterator[str]:
    for gpu in space.gpus:
        if not nccl_runs(value, gpu.cc):
            yield f"NCCL {value.version} has no code for {gpu.label} ({gpu.cc}); with one GPU that is not used"


def _torch(space: Space, value: TorchValue) -> Iterator[str]:
    for library in uncovered_libraries(space, value):
        yield f"torch {value.version}+{value.build.variant} includes a library that does not support the GPU: {library}"
    if "triton" not in space.values and value.release.companions.get("triton"):
        for gpu in space.gpus:
            if floor := _below_triton(space, gpu):
                yield f"Triton and torch.compile need compute capability {floor}; {gpu.label} has {gpu.cc}"
    if value.build.status in ("experimental", "unlisted") and not space.on_pypi(value):
        kind = "calls this build experimental" if value.build.status == "experimental" else "does not list this build"
        yield f"torch {value.version}+{value.build.variant}: PyTorch {kind}; check the index before you rely on it"


def _tensorflow(value: TensorflowValue) -> Iterator[str]:
    if not value.release.pins:
        yield (
            f"TensorFlow {value.version} does not include CUDA: it needs CUDA {value.release.cuda} and cuDNN "
            f"{value.release.cudnn} on the system"
        )


def _code(space: Space, solution: Mapping[str, Value]) -> Iterator[str]:
    for gpu in space.gpus:
        if gpu.inferred:
            yield (
                f"{gpu.label}: its compute capability {gpu.cc} is inferred from its die; to confirm it: "
                "nvidia-smi --query-gpu=compute_cap --format=csv"
            )
        for name in FRAMEWORKS:
            if name in solution and rules.code_for(code_of(space, solution[name]), gpu.cc) == "ptx":
                yield f"{label(name, solution[name])} has only PTX for {gpu.label}: the first start compiles it"
