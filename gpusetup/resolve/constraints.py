"""Build the search space of a request: its components, the requirements on them, and the host's limits."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any, cast

import msgspec

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.systems import find_system
from gpusetup.model.platforms import OsRelease
from gpusetup.model.release import TorchBuild
from gpusetup.model.request import DEFAULT_COMPONENTS, PACKAGES, Request, Requirement
from gpusetup.resolve import rules
from gpusetup.resolve.domains import (
    CudnnValue,
    CupyValue,
    DriverValue,
    JaxValue,
    PackageValue,
    TensorflowValue,
    TorchValue,
    Value,
    branch_of,
    domain,
    matches,
    minor_of,
)
from gpusetup.resolve.hardware import add_hardware
from gpusetup.resolve.packages import COMPANIONS, add_packages, asked_packages, earlier, what_packages_need
from gpusetup.resolve.policy import add_policy
from gpusetup.resolve.preferences import best
from gpusetup.resolve.space import FRAMEWORKS, Space, pythons
from gpusetup.versions import nv


def add_release_window(space: Space, build: Callable[[Matrix, Request], Space]) -> None:
    """Limit each package requested in any version to releases within three months of the one it would get alone.

    Packages that pin each other to one version, such as those of RAPIDS, share the oldest limit. A package beside
    another one that bounds the same libraries may be as old as the other one's release asks for.
    """
    request, alone = space.request, dict[str, PackageValue]()

    def chosen(name: str, *fixed: Requirement) -> PackageValue | None:
        """Return what a package gets without the others but these; None if there is a conflict without this rule."""
        few = tuple(item for item in request.requirements if item.component not in PACKAGES or item.component == name)
        solution = best(build(space.matrix, msgspec.structs.replace(request, requirements=(*few, *fixed))))
        value = cast("PackageValue", solution[name]) if solution is not None else None
        return value if value is not None and value.release.date else None

    names = asked_packages(request)
    fixed = [name for name in names if space.named[name].specifier and name not in COMPANIONS]
    for name in names if len(names) > 1 else ():
        if name in fixed or name in COMPANIONS:  # torch decides on its companions
            continue
        if (value := chosen(name)) is not None:
            alone[name] = value
    for name, own in alone.items():
        if any(_disagree(value, own) for one in fixed for value in _asked(space, one)):
            continue  # a release that was asked for decides
        suite = [value for one, value in alone.items() if value is own or _follows(value, name) or _follows(own, one)]
        for one, value in alone.items():
            if value is not own and _disagree(value, own):
                beside = chosen(name, Requirement(component=one, specifier=f"=={value.version}"))
                suite += [beside] if beside is not None else []
        oldest = min(suite, key=lambda value: value.release.date)
        space.unary("package-recency", name, partial(_since, earlier(oldest.release.date)), subject=oldest)


def _asked(space: Space, name: str) -> Iterator[PackageValue]:
    values = space.values[name]
    meant = matches(space.named[name], [value.version for value in values])
    yield from (cast("PackageValue", value) for value in values if value.version in meant)


def _follows(value: PackageValue, name: str) -> bool:
    return value.release.requires.get(name, "").startswith("==")


def _disagree(one: PackageValue, other: PackageValue) -> bool:
    both = one.release.requires.keys() & other.release.requires.keys()
    return any(one.release.requires[name] != other.release.requires[name] for name in both - {"torch"})


def _since(oldest: str, value: PackageValue) -> bool:
    return value.release.date >= oldest


_PYTHON_PACKAGES = (*FRAMEWORKS, "cupy")
_ORDER = ("driver", *PACKAGES, "torch", "tensorflow", "jax", "cuda", "cudnn", "nccl", "cupy", "python")


def build(matrix: Matrix, request: Request) -> Space:
    """Return the search space of a request with every rule that applies."""
    if any(item.beside for item in request.requirements):
        raise BadInputError(
            "GS-114", "only resolve, lock, plan and apply look at several CUDAs side by side", path="REQ"
        )
    space = Space(matrix, request)
    _find_system(space)
    for name in _components(space):
        space.values[name] = domain(name, matrix, request)
        if not space.values[name]:
            raise BadInputError(
                "GS-208", f"this matrix has no {name} release with known requirements", path=matrix.path(name)
            )
    for requirement in request.requirements:
        _requested(space, requirement)
    _driver(space)
    _libraries(space)
    add_hardware(space)
    add_runtimes(space)
    _wheels(space)
    if any(name in space.values for name in PACKAGES):
        add_packages(space)
        if len(asked_packages(request)) > 1:
            add_release_window(space, build)
    add_policy(space)
    for gpu in space.gpus:
        if gpu.only_cpu is not None and gpu.only_cpu != space.arch:
            space.unary("gpu-only-beside-cpu", "driver", lambda _: False, subject=(gpu, space.arch))
    if space.os is not None:
        _distribution(space, space.os)
    return space


def _components(space: Space) -> list[str]:
    """Return the components of the answer: the requested ones and those they need."""
    request = space.request
    asked = {item.component for item in request.requirements}
    if not asked - {"python"}:
        asked |= set(DEFAULT_COMPONENTS)
    packages = asked & set(PACKAGES)
    if packages:
        asked |= what_packages_need(space.matrix, request, space.arch)
    if "cupy" in asked or (asked & {"cudnn", "nccl"} and not asked & set(FRAMEWORKS)):
        asked.add("cuda")
    if packages or asked & set(_PYTHON_PACKAGES):
        asked.add("python")
    asked.add("driver")
    return [name for name in _ORDER if name in asked]


def _find_system(space: Space) -> None:
    """Set the distribution, and the CPU architecture when a GPU implies one."""
    if space.request.os is not None:
        space.os = find_system(space.matrix, space.request.os)
    implied = {gpu.only_cpu for gpu in space.gpus if gpu.only_cpu}
    if space.request.arch is None and len(implied) == 1:
        space.arch = implied.pop()


def _requested(space: Space, requirement: Requirement) -> None:
    hits = matches(requirement, {value.version for value in space.values[requirement.component]})
    variant = requirement.variant
    space.unary(
        "requested",
        requirement.component,
        lambda value: value.version in hits and (not variant or variant in space.builds(value)),
        subject=requirement,
        origin="request",
    )


def _driver(space: Space) -> None:
    request = space.request
    if request.driver is not None:
        if branch_of(space.matrix, request.driver) is None:
            raise BadInputError(
                "GS-124",
                f"driver {request.driver} is older than R{min(item.branch for item in space.matrix.driver.branches)}, "
                "the oldest branch in the matrix",
                path=f"--driver {request.driver}",
            )
        space.unary(
            "installed-driver-stays",
            "driver",
            lambda value: value.version == request.driver,
            subject=request.driver,
            origin="request",
        )
    if request.driver_candidates is not None:
        offered = {item.version for item in request.driver_candidates} | {request.installed_driver}
        space.unary(
            "repository-offers", "driver", lambda value: value.version in offered, subject=request, origin="request"
        )
    if request.driver_elsewhere is not None:
        there, kind = (request.driver, request.installed_driver), request.driver_elsewhere
        space.unary("driver-elsewhere", "driver", lambda value: value.version in there, subject=kind)
    if request.vgpu_guest:
        space.unary("vgpu-guest-driver", "driver", lambda value: value.version == request.installed_driver)


def _libraries(space: Space) -> None:
    """Limit libraries from the host's repositories to the versions offered there."""
    for candidates in space.request.library_candidates:
        test = partial(_is_among, frozenset(candidates.builds))
        space.unary("repository-offers", candidates.component, test, subject=candidates, origin="request")


def _is_among(builds: frozenset[tuple[str, str]], value: Value) -> bool:
    return any((value.version, major) in builds for major in _cuda_majors(value))


def _cuda_majors(value: Value) -> set[str]:
    if isinstance(value, CudnnValue):
        return {minor.partition(".")[0] for minor in value.row.cuda}
    return {minor_of(value).partition(".")[0]}


def python_tags(arch: str) -> Callable[[Value], tuple[str, ...]]:
    """Return a function that maps a framework or package to the Python versions its wheels support on this CPU."""

    def tags(value: Value) -> tuple[str, ...]:
        if isinstance(value, TorchValue | JaxValue):
            return value.release.pythons
        if isinstance(value, TensorflowValue | CupyValue | PackageValue):
            return value.release.pythons.get(cast("Any", arch), ())
        raise TypeError(type(value).__name__)

    return tags


def _wheels(space: Space) -> None:
    tags = python_tags(space.arch)
    for name in (*_PYTHON_PACKAGES, *(name for name in PACKAGES if name in space.values)):
        space.pair(
            "python-tag",
            (name, tags),
            ("python", lambda value: value.version),
            lambda offered, version: version in offered,
        )
    for name in ("tensorflow", "cupy"):
        space.unary("wheel-for-cpu", name, lambda value: bool(tags(value)), subject=space.arch)
    for name in ("tensorflow", "jax", "cupy"):
        space.unary("release-excluded", name, lambda value: not value.release.excluded)
    space.unary("cuda-system-package", "cuda", lambda value: value.release.system)


def _distribution(space: Space, system: OsRelease) -> None:
    if space.arch not in system.arches:
        space.unary("distribution-cpu", "driver", lambda _: False, subject=(system, space.arch))
    if system.glibc != "unknown":
        glibc = nv(system.glibc)
        for name in FRAMEWORKS:
            space.unary("glibc-tag", name, lambda value: nv(value.release.glibc) <= glibc, subject=system)
    request, last = space.request, system.last_branch
    offered = request.driver_candidates and {item.version for item in request.driver_candidates}
    # Candidates that leave no driver out, as the explorer's, are of no host's repository, which would decide.
    elsewhere = offered is not None and any(value.version not in offered for value in space.values["driver"])
    if last is not None and request.driver is None and not elsewhere:
        space.unary(
            "distribution-has-driver",
            "driver",
            lambda value: value.branch.branch <= last or value.version == request.installed_driver,
            subject=system,
        )
    looked = any(candidates.component == "cuda" for candidates in request.library_candidates)
    if looked or request.wheels_only:
        return  # the host's own repositories decide, or CUDA comes as wheels
    low, high = nv(system.cuda_min or "0"), nv(system.cuda_max or "999")
    space.unary("distribution-has-cuda", "cuda", lambda value: low <= nv(value.version) <= high, subject=system)


def add_pythons(space: Space) -> None:
    """Limit Python to what the system has or packages, unless the request names one."""
    known = pythons(space)
    if known and "python" not in space.named:
        space.unary("distribution-python", "python", lambda value: value.version in known, subject=(space.os, known))


_SHARED_MAJOR = tuple(combinations(("torch", "tensorflow", "jax", "nccl", "cuda"), 2))


def add_runtimes(space: Space) -> None:
    """Add every rule between driver, CUDA runtimes, libraries, frameworks and Python."""
    add_pythons(space)
    _drivers(space)
    _one_major(space)
    _cudnn(space)
    for first, second in (("torch", "tensorflow"), ("torch", "jax"), ("tensorflow", "jax")):
        space.pair(
            "framework-pins-agree",
            (first, lambda value: tuple(_pins(value).items())),
            (second, lambda value: tuple(_pins(value).items())),
            lambda one, other: rules.pins_agree(dict(one), dict(other)),
        )


def _drivers(space: Space) -> None:
    drivers = {value.version: value for value in space.values["driver"]}

    def stands(version: str, need: rules.CudaNeed) -> bool:
        driver = cast("DriverValue", drivers[version])
        found = rules.relation(space.matrix, driver, need, forward=space.forward)
        return found in ("native", "backward") if space.request.native else found is not None

    for name in ("cuda", *FRAMEWORKS):
        space.pair("driver-runs-cuda", ("driver", lambda value: value.version), (name, space.need), stands)
    space.pair(
        "jax-driver-floor",
        ("driver", lambda value: value.version),
        ("jax", lambda value: value.release.min_driver),
        lambda version, floor: nv(version) >= nv(floor),
    )


def _one_major(space: Space) -> None:
    for first, second in _SHARED_MAJOR:
        space.pair(
            "one-cuda-major", (first, space.cuda_major), (second, space.cuda_major), lambda one, other: one == other
        )
    for name in ("cuda", *FRAMEWORKS):
        space.pair(
            "one-cuda-major",
            ("cupy", lambda value: frozenset(rules.major(minor) for minor in value.release.cuda)),
            (name, space.cuda_major),
            lambda majors, wanted: wanted in majors,
        )


def _cudnn(space: Space) -> None:
    space.pair(
        "cudnn-takes-cuda",
        ("cudnn", lambda value: (value.cuda_majors, value.row)),
        ("cuda", lambda value: value.release.minor),
        lambda key, minor: rules.major(minor) in key[0] and rules.cudnn_row_takes(key[1], minor),
    )
    space.pair(
        "cudnn-driver-floor",
        ("cudnn", lambda value: value.row.min_driver),
        ("driver", lambda value: value.version),
        lambda floor, version: floor is None or nv(version) >= nv(floor),
    )
    # A build whose cuDNN was not read has one of the major that the release's other builds have.
    likely = {build.version: _cudnn_inside(build)[:1] for build in space.matrix.torch.builds if build.cudnn}
    space.pair(
        "torch-pins-cudnn",
        ("torch", lambda value: (_cudnn_inside(value.build) or likely.get(value.version, ()), space.cuda_major(value))),
        ("cudnn", lambda value: (nv(value.version).numbers[:3], value.cuda_majors)),
        lambda torch, cudnn: torch[1] in cudnn[1] and cudnn[0][: len(torch[0])] == torch[0],
    )
    for name in ("tensorflow", "jax"):
        space.pair(
            f"{name}-takes-cudnn",
            (name, lambda value: (space.cudnn_pin(value), space.cuda_major(value))),
            ("cudnn", lambda value: (value.version, value.cuda_majors)),
            _takes_cudnn,
        )


def _cudnn_inside(build: TorchBuild) -> tuple[int, ...]:
    return nv(build.cudnn).numbers[:3] if build.cudnn else ()


def _takes_cudnn(framework: Any, cudnn: Any) -> bool:
    pin, cuda_major = framework
    return cuda_major in cudnn[1] and (not pin or rules.pins_agree({"cudnn": pin}, {"cudnn": cudnn[0]}))


def _pins(value: Value) -> dict[str, str]:
    if isinstance(value, TorchValue):
        if value.build.default:
            return value.release.pins
        suffix = f"cu{rules.major(value.build.cuda)}"
        known = {f"nvidia-cudnn-{suffix}": value.build.cudnn, f"nvidia-nccl-{suffix}": value.build.nccl}
        return {name: version for name, version in known.items() if version}
    return value.release.pins if isinstance(value, TensorflowValue | JaxValue) else {}
