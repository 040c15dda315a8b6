"""Turn the chosen values into the stack document, and warn of what could fail with it.

Warnings tell ended support, limits of a compatibility mode, code that a GPU lacks. Where a fact comes from is not a
warning; it is one of the reasons.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from gpusetup.matrix.gpus import GpuKind
from gpusetup.matrix.security import floor, vulnerable
from gpusetup.model.packages import major_of_extra
from gpusetup.model.request import PACKAGES, Relation, Request
from gpusetup.model.stack import (
    CudaChoice,
    CupyChoice,
    DriverChoice,
    JaxChoice,
    LibraryChoice,
    PackageChoice,
    PythonChoice,
    Stack,
    TensorflowChoice,
    TorchChoice,
)
from gpusetup.resolve import rules
from gpusetup.resolve.constraints import build, python_tags
from gpusetup.resolve.domains import (
    CudaValue,
    CudnnValue,
    CupyValue,
    DriverValue,
    JaxValue,
    NcclValue,
    PackageValue,
    TensorflowValue,
    TorchValue,
    Value,
)
from gpusetup.resolve.hardware import code_of, limits_of, nccl_runs, uncovered_libraries
from gpusetup.resolve.naming import alone, label, only_module, unknown_driver
from gpusetup.resolve.package_sentences import python_warnings
from gpusetup.resolve.packages import extra_majors, lowest_made, package_relation
from gpusetup.resolve.preferences import best
from gpusetup.resolve.space import FRAMEWORKS, Space, pythons
from gpusetup.versions import nv

TORCH_INDEX = "https://download.pytorch.org/whl/"
WEAKEST_LAST: tuple[Relation, ...] = ("native", "backward", "minor-version", "forward")


def relations(space: Space, solution: Mapping[str, Value]) -> dict[str, Relation]:
    """Return how each CUDA runtime of the stack runs on the driver."""
    driver = cast("DriverValue", solution["driver"])
    found = {name: space.relation(driver, solution[name]) for name in ("cuda", *FRAMEWORKS) if name in solution}
    return {name: relation for name, relation in found.items() if relation is not None}


def stack_of(space: Space, solution: Mapping[str, Value]) -> Stack:
    """Return the stack document for a solution."""
    stands = relations(space, solution)
    made: dict[str, Callable[[Any], Any]] = {
        "driver": lambda value: _driver(space, value, stands),
        "cuda": lambda value: _cuda(value, stands["cuda"]),
        "cudnn": lambda value: _cudnn(value, solution, space),
        "nccl": lambda value: LibraryChoice(version=value.version, cuda=value.build.cuda),
        "torch": lambda value: _torch(space, value, stands["torch"]),
        "tensorflow": lambda value: _tensorflow(space, value, stands["tensorflow"]),
        "jax": lambda value: _jax(space, value, stands["jax"]),
        "cupy": lambda value: CupyChoice(
            version=value.version, package=value.release.package, ctk=value.release.ctk_extra
        ),
        "python": lambda _: _python(space, solution),
        **dict.fromkeys(PACKAGES, lambda value: _package(space, value, solution)),
    }
    return Stack(**{name.replace("-", "_"): make(solution[name]) for name, make in made.items() if name in solution})


def _driver(space: Space, value: DriverValue, stands: Mapping[str, Relation]) -> DriverChoice:
    return DriverChoice(
        version=value.version,
        branch=str(nv(value.version).major),
        module=value.module,
        relation=max(stands.values(), key=WEAKEST_LAST.index, default="native"),
        installed=value.version == space.request.driver or stays(space.request, value),
    )


def stays(request: Request, value: DriverValue) -> bool:
    """Return whether a driver is the installed one, with the same flavour of kernel modules."""
    return value.version == request.installed_driver and request.installed_module in (None, value.module)


def _cuda(value: CudaValue, relation: Relation) -> CudaChoice:
    compat = "cuda-compat-" + value.release.minor.replace(".", "-") if relation == "forward" else None
    return CudaChoice(version=value.version, relation=relation, wheel=value.release.wheel, compat=compat)


def _cudnn(value: CudnnValue, solution: Mapping[str, Value], space: Space) -> LibraryChoice:
    beside = next((solution[name] for name in ("cuda", *FRAMEWORKS) if name in solution), None)
    major = space.cuda_major(beside) if beside is not None else max(value.cuda_majors)
    return LibraryChoice(version=value.version, cuda=str(major))


def _torch(space: Space, value: TorchValue, relation: Relation) -> TorchChoice:
    build = value.build
    return TorchChoice(
        version=value.version,
        variant=build.variant,
        cuda=build.cuda,
        relation=relation,
        index_url=TORCH_INDEX + build.variant,
        on_pypi=space.on_pypi(value),
        cudnn=build.cudnn,
        nccl=build.nccl,
    )


def _tensorflow(space: Space, value: TensorflowValue, relation: Relation) -> TensorflowChoice:
    release = value.release
    return TensorflowChoice(
        version=value.version,
        cuda=release.cuda,
        cudnn=release.cudnn,
        relation=relation,
        extra="and-cuda" if release.pins else None,
        limits=limits_of(space, value),
    )


def _jax(space: Space, value: JaxValue, relation: Relation) -> JaxChoice:
    return JaxChoice(
        version=value.version,
        cuda=space.minor(value),
        relation=relation,
        extra=value.release.extra,
        limits=limits_of(space, value),
    )


def _package(space: Space, value: PackageValue, solution: Mapping[str, Value]) -> PackageChoice:
    release, driver = value.release, cast("DriverValue", solution["driver"])
    return PackageChoice(
        version=value.version,
        kind="source" if release.kind == "source" else "wheel",
        cuda=release.cuda[0] if len(release.cuda) == 1 else None,
        relation=package_relation(space, driver, value),
        extras=tuple(
            text for text in release.extras if major_of_extra(text) in ("", str(_cuda_major(space, value, solution)))
        ),
        adds=(*release.adds, *limits_of(space, value)),
        build=value.file.build if release.kind == "source" else "",
    )


def _cuda_major(space: Space, package: PackageValue, solution: Mapping[str, Value]) -> int:
    """Return the CUDA major of the stack's framework or toolkit, else the newest for driver, GPUs and package."""
    beside = next((solution[name] for name in (*FRAMEWORKS, "cuda") if name in solution), None)
    if beside is not None:
        return space.cuda_major(beside)
    driver = cast("DriverValue", solution["driver"])
    lowest, own = lowest_made(space.matrix), extra_majors(package)
    majors = [row.major for row in space.matrix.cuda.majors if driver.number >= nv(row.min_driver)]
    return max(
        (major for major in majors if major in own and all(lowest[major] <= nv(gpu.cc) for gpu in space.gpus)),
        default=0,
    )


def _python(space: Space, solution: Mapping[str, Value]) -> PythonChoice:
    tags = python_tags(space.arch)
    sets = [set(tags(solution[name])) for name in (*PACKAGES, *FRAMEWORKS, "cupy") if name in solution]
    if not sets:  # nothing of the stack comes as a wheel
        sets = [{solution["python"].version}]
    shared = sorted(
        (version for version in set.intersection(*sets) if not version.endswith("t")), key=lambda text: nv(text).numbers
    )
    pinned = "python" in space.named or bool(pythons(space))
    return PythonChoice(requires=python_range(shared), version=solution["python"].version if pinned else None)


def python_range(minors: list[str]) -> str:
    """Return a specifier that covers these Python minors and excludes the gaps between them."""
    numbers = [nv(text).numbers[1] for text in minors]
    gaps = "".join(f",!=3.{gap}.*" for gap in range(numbers[0], numbers[-1]) if gap not in numbers)
    return f">={minors[0]},<3.{numbers[-1] + 1}{gaps}"


_EVERY_TRITON = "7.5"
"""Every release of Triton supports this capability and newer ones, so its file need not be read for them."""


def warnings_about(space: Space, solution: Mapping[str, Value]) -> tuple[str, ...]:
    """Return every warning about a stack, one sentence each."""
    found = [*_driver_warnings(space, cast("DriverValue", solution["driver"])), *_relations(space, solution)]
    if "cuda" in solution and "cupy" in solution:
        cupy, cuda = cast("CupyValue", solution["cupy"]), cast("CudaValue", solution["cuda"]).release.minor
        untested = cuda not in cupy.release.cuda
        found += [f"CuPy {cupy.version} was not tested with CUDA {cuda}"] if untested else []
    if "cudnn" in solution:
        found += _cudnn_warnings(space, cast("CudnnValue", solution["cudnn"]))
    if "nccl" in solution:
        found += _nccl_warnings(space, cast("NcclValue", solution["nccl"]))
    if "torch" in solution:
        found += _torch_warnings(space, cast("TorchValue", solution["torch"]))
    if "tensorflow" in solution:
        found += _tensorflow_warnings(space, cast("TensorflowValue", solution["tensorflow"]))
    found += _code(space, solution)
    if any(name in solution for name in PACKAGES):
        from gpusetup.resolve.package_sentences import package_warnings

        found += package_warnings(space, solution)
    found += python_warnings(space, solution)
    found += filter(None, (alone(wish, space.matrix) for wish in space.request.requirements))
    return tuple(dict.fromkeys(found))


def _driver_warnings(space: Space, value: DriverValue) -> Iterator[str]:
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
    others = [gpu.label for gpu in space.gpus if gpu.only_cpu is None and space.request.arch is None]
    for gpu in space.gpus:
        if gpu.only_cpu and others:
            yield f"{gpu.label} comes only with {gpu.only_cpu} CPUs: the answer is for {others[0]} in such a host too"


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


def _cudnn_warnings(space: Space, value: CudnnValue) -> Iterator[str]:
    """A newer cuDNN drops the oldest GPUs first, so another version's row is doubtful only for those."""
    row = value.row
    oldest = [gpu for gpu in space.gpus if row.cc_min is not None and nv(gpu.cc).major <= nv(row.cc_min).major]
    if value.leaning and oldest:
        yield (
            f"cuDNN {value.version} is newer than NVIDIA's support matrix (up to {row.version}), so its support of "
            f"{oldest[0].label} is not confirmed; gpusetup verify tests it"
        )


def _nccl_warnings(space: Space, value: NcclValue) -> Iterator[str]:
    for gpu in space.gpus:
        if not nccl_runs(value, gpu.cc):
            yield f"NCCL {value.version} has no code for {gpu.label} ({gpu.cc}); with one GPU that is not used"


def _torch_warnings(space: Space, value: TorchValue) -> Iterator[str]:
    for library in uncovered_libraries(space, value):
        yield f"torch {value.version}+{value.build.variant} includes a library that does not support the GPU: {library}"
    if "triton" not in space.values and value.release.companions.get("triton"):
        for gpu in space.gpus:
            if floor := _below_triton(space, gpu):
                yield f"Triton and torch.compile need compute capability {floor}; {gpu.label} has {gpu.cc}"
    if value.build.status in ("experimental", "unlisted") and not space.on_pypi(value):
        kind = "calls this build experimental" if value.build.status == "experimental" else "does not list this build"
        yield f"torch {value.version}+{value.build.variant}: PyTorch {kind}; check the index before you rely on it"


def _tensorflow_warnings(space: Space, value: TensorflowValue) -> Iterator[str]:
    if pin := value.release.pins.get("tensorrt"):
        row = next(item for item in space.matrix.package("tensorrt").releases if item.version == pin)
        last = row.pythons.get("x86_64", ("",))[-1]
        had = f"up to Python {last} only" if row.kind == "wheel" else "only as a stub of https://pypi.nvidia.com"
        yield f"TensorFlow {value.version} installs tensorrt {pin}, which PyPI has {had}; 2.15.1 installs none"
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
