"""Turn the chosen values into the stack document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gpusetup.model.packages import major_of_extra
from gpusetup.model.request import PACKAGES
from gpusetup.model.stack import (
    CudaChoice,
    CupyChoice,
    DriverChoice,
    JaxChoice,
    LibraryChoice,
    PackageChoice,
    PythonChoice,
    Relation,
    Stack,
    TensorflowChoice,
    TorchChoice,
)
from gpusetup.resolve.constraints import python_tags
from gpusetup.resolve.hardware import limits_of
from gpusetup.resolve.space import FRAMEWORKS, pythons
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusetup.model.request import Request
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
    from gpusetup.resolve.space import Space

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
    packages: dict[str, Any] = {
        name.replace("-", "_"): _package(space, cast("PackageValue", solution[name]), solution)
        for name in PACKAGES
        if name in solution
    }
    return Stack(
        driver=_driver(space, cast("DriverValue", solution["driver"]), stands),
        cuda=_cuda(cast("CudaValue", solution["cuda"]), stands["cuda"]) if "cuda" in solution else None,
        cudnn=_cudnn(cast("CudnnValue", solution["cudnn"]), solution, space) if "cudnn" in solution else None,
        nccl=_nccl(cast("NcclValue", solution["nccl"])) if "nccl" in solution else None,
        torch=_torch(space, cast("TorchValue", solution["torch"]), stands["torch"]) if "torch" in solution else None,
        tensorflow=_tensorflow(space, cast("TensorflowValue", solution["tensorflow"]), stands["tensorflow"])
        if "tensorflow" in solution
        else None,
        jax=_jax(space, cast("JaxValue", solution["jax"]), stands["jax"]) if "jax" in solution else None,
        cupy=_cupy(cast("CupyValue", solution["cupy"])) if "cupy" in solution else None,
        python=_python(space, solution) if "python" in solution else None,
        **packages,
    )


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


def _nccl(value: NcclValue) -> LibraryChoice:
    return LibraryChoice(version=value.version, cuda=value.build.cuda)


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


def _cupy(value: CupyValue) -> CupyChoice:
    return CupyChoice(version=value.version, package=value.release.package, ctk=value.release.ctk_extra)


def _package(space: Space, value: PackageValue, solution: Mapping[str, Value]) -> PackageChoice:
    from gpusetup.resolve.packages import package_relation

    release, driver = value.release, cast("DriverValue", solution["driver"])
    return PackageChoice(
        version=value.version,
        kind="source" if release.kind == "source" else "wheel",
        cuda=release.cuda[0] if len(release.cuda) == 1 else None,
        relation=package_relation(space, driver, value),
        extras=tuple(
            text
            for text in (*value.file.extras, *release.extras)
            if major_of_extra(text) in ("", str(_cuda_major(space, solution)))
        ),
        adds=release.adds,
        build=value.file.build if release.kind == "source" else "",
    )


def _cuda_major(space: Space, solution: Mapping[str, Value]) -> int:
    """Return the CUDA major of the stack's framework or toolkit, else the newest that the driver runs."""
    beside = next((solution[name] for name in (*FRAMEWORKS, "cuda") if name in solution), None)
    if beside is not None:
        return space.cuda_major(beside)
    driver = cast("DriverValue", solution["driver"])
    majors = [row.major for row in space.matrix.cuda.majors if driver.number >= nv(row.min_driver)]
    return max(majors)


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
