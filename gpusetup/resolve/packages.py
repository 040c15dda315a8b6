"""Rules for packages above the frameworks: what each release requires of torch, Python, CPU, GPU and driver."""

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, cast

from gpusetup.matrix.gpus import GpuKind
from gpusetup.matrix.load import Matrix
from gpusetup.model.packages import PackageFile, major_of_extra
from gpusetup.model.request import PACKAGES, Relation, Request, Requirement
from gpusetup.resolve import domains, rules
from gpusetup.resolve.domains import DriverValue, JaxValue, PackageValue, TensorflowValue, TorchValue, Value, parsed
from gpusetup.resolve.space import Space
from gpusetup.versions import NvVersion, nv

_MONTHS = 3
"""A release that is older than the expected one by more than this is chosen only when requested by version."""
_RUNTIMES = ("cuda", "torch", "tensorflow", "jax")
_BESIDE = ("torch", "tensorflow", "jax", "cupy")
COMPANIONS = ("torchvision", "torchaudio", "triton")


def asked_packages(request: Request) -> list[str]:
    """Return the packages above the frameworks that a request names, in the order of PACKAGES."""
    named = {item.component for item in request.requirements}
    return [name for name in PACKAGES if name in named] if named & _KNOWN else []


_KNOWN = frozenset(PACKAGES)


def what_packages_need(matrix: Matrix, request: Request, arch: str) -> set[str]:
    """Return the components that the packages of a request need on this CPU."""
    needed: set[str] = set()
    for name in asked_packages(request):
        file = matrix.package(name)
        needed |= {other for other in file.needs if other in _KNOWN and _wheel_for(matrix, other, arch)}
        if needs_torch(file):
            needed.add("torch")
        if request.allow_builds and "nvcc" in file.build and all(item.kind == "source" for item in file.releases):
            needed.add("cuda")
    return needed


def needs_torch(file: PackageFile) -> bool:
    """Return whether a package, or one of its releases, needs torch."""
    return "torch" in file.needs or any("torch" in item.requires for item in file.releases)


def _wheel_for(matrix: Matrix, name: str, arch: str) -> bool:
    return any(item.kind == "wheel" and arch in item.pythons for item in matrix.package(name).releases)


def add_packages(space: Space) -> None:
    """Add every rule about the requested packages and those that they need."""
    names = [name for name in PACKAGES if name in space.values]
    for name in names:
        _release(space, name)
        _hardware(space, name)
        _torch(space, name)
        _majors(space, name)
        for other in (*names[names.index(name) + 1 :], *_BESIDE):
            _together(space, name, other)


def _release(space: Space, name: str) -> None:
    arch = cast("Any", space.arch)
    releases = cast("list[PackageValue]", space.values[name])
    space.unary("package-placeholder", name, lambda value: value.release.kind != "placeholder")
    space.unary("package-withdrawn", name, lambda value: not value.release.yanked or _named(space, name, value))
    if not space.request.allow_builds:
        built = [value for value in releases if value.release.kind == "source"]
        newest = max(built, key=lambda value: parsed(value.version), default=None)
        limit = earlier(newest.release.date) if newest is not None and not _older_asked_for(space, name) else ""
        space.unary(
            "package-built-from-source",
            name,
            lambda value: value.release.kind != "source" and value.release.date >= limit,
            subject=newest,
        )
    elif any(value.release.kind == "wheel" for value in releases):
        last = max(value.release.date for value in releases if value.release.kind == "wheel")
        space.unary(
            "package-wheel-instead",
            name,
            lambda value: value.release.kind != "source" or value.release.date > last or _named(space, name, value),
        )
    space.unary("package-for-cpu", name, lambda value: bool(value.release.pythons.get(arch)), subject=space.arch)
    if space.os is not None and space.os.glibc != "unknown":
        glibc = nv(space.os.glibc)
        space.unary(
            "package-glibc", name, lambda value: nv(value.release.glibc.get(arch, "0")) <= glibc, subject=space.os
        )


def _older_asked_for(space: Space, name: str) -> bool:
    """Return whether a package's wish is more than lower bounds: `==8.6.*` and `<9` may mean a release of long ago."""
    wish = space.named.get(name, Requirement(component=name))
    return any(part.operator not in (">=", ">", "!=") for part in domains.specifiers(wish.specifier))


def earlier(day: str) -> str:
    """Return the date three months before: nothing older is chosen silently instead of something newer."""
    year, month = int(day[:4]), int(day[5:7]) - _MONTHS
    return f"{year if month > 0 else year - 1}-{month if month > 0 else month + 12:02}{day[7:]}"


def _named(space: Space, name: str, value: PackageValue) -> bool:
    wish = space.named.get(name)
    return wish is not None and wish.specifier == f"=={value.version}"


def _hardware(space: Space, name: str) -> None:
    for gpu in space.gpus:
        space.unary("package-gpu-floor", name, partial(_above_floor, nv(gpu.cc)), subject=gpu)
        space.unary("package-code-for-gpu", name, partial(_has_code, gpu.cc), subject=gpu)
        space.unary(
            "package-cuda-for-gpu", name, partial(_has_compiler, lowest_made(space.matrix), gpu.cc), subject=gpu
        )
        _documented(space, name, gpu)
    drivers = {value.version: cast("DriverValue", value) for value in space.values["driver"]}

    def stands(version: str, cuda: tuple[str, ...]) -> bool:
        found = [_relation(space, drivers[version], minor) for minor in cuda]
        if space.request.native:
            return not cuda or any(way in ("native", "backward") for way in found)
        return not cuda or any(way is not None for way in found)

    space.pair("package-cuda-needs-driver", ("driver", lambda value: value.version), (name, cuda_of), stands)
    space.pair(
        "package-driver-floor",
        ("driver", lambda value: value.version),
        (name, lambda value: value.release.driver_min),
        lambda version, floor: floor is None or nv(version) >= nv(floor),
    )


def _documented(space: Space, name: str, gpu: GpuKind) -> None:
    """Exclude undocumented releases that follow the last one documented for this GPU, or the first that excludes it."""
    values = cast("list[PackageValue]", space.values[name])
    silent = {value.version for value in values if value.release.code is None and value.release.cc_min is None}
    told = [value for value in values if value.version not in silent]
    for_it = [value for value in told if _above_floor(nv(gpu.cc), value) and _has_code(gpu.cc, value)]
    wish = space.named.get(name, Requirement(component=name))
    if len(for_it) == len(told) or (wish.specifier and not domains.matches(wish, [item.version for item in for_it])):
        return
    last = max(parsed(item.version) for item in for_it) if for_it else min(parsed(item.version) for item in told)
    space.unary(
        "package-gpu-untold",
        name,
        lambda value: value.version not in silent or parsed(value.version) < last,
        subject=(gpu, str(last)),
        lasting=False,
    )


@lru_cache(maxsize=4)
def lowest_made(matrix: Matrix) -> Mapping[int, NvVersion]:
    """Return, per CUDA major, the lowest compute capability that any of its compilers supports."""
    lowest: dict[int, NvVersion] = {}
    for row in matrix.cuda.toolchains:
        major, least = rules.major(row.minor), nv(row.cc_min)
        lowest[major] = min(least, lowest.get(major, least))
    return lowest


def _has_compiler(lowest: Mapping[int, NvVersion], cc: str, value: PackageValue) -> bool:
    majors = made_with(value)
    return not majors or any(lowest.get(major, nv(cc)) <= nv(cc) for major in majors)


def _above_floor(cc: NvVersion, value: PackageValue) -> bool:
    return value.release.cc_min is None or nv(value.release.cc_min) <= cc


def _has_code(cc: str, value: PackageValue) -> bool:
    code = value.release.code
    return code is None or rules.way_of(code.targets, code.ptx, cc) is not None


def _relation(space: Space, driver: DriverValue, minor: str) -> Relation | None:
    whole = minor if "." in minor else f"{minor}.0"
    return rules.relation(space.matrix, driver, rules.need_of_minor(space.matrix, whole), forward=space.forward)


def package_relation(space: Space, driver: DriverValue, value: PackageValue) -> Relation | None:
    """Return how the CUDA inside a wheel runs on a driver; None if its minor is unknown or it has several."""
    cuda = value.release.cuda
    return _relation(space, driver, cuda[0]) if len(cuda) == 1 and "." in cuda[0] else None


def _torch(space: Space, name: str) -> None:
    space.pair(
        "package-requires",
        (name, partial(_asks, "torch")),
        ("torch", lambda value: value.version),
        _meets,
        subject="torch",
    )
    if name in COMPANIONS and "torch" in space.values:
        beyond = _asked_beyond(space, name)
        space.pair(
            "torch-companion",
            (name, lambda value: value.version),
            ("torch", partial(_companion, space, name, beyond=beyond)),
            lambda version, companion: companion is not None and _meets(exact(companion), version),
            subject=beyond,
        )
    wish = space.named.get("torch")
    if wish is None or not wish.variant:
        served = [cast("TorchValue", value) for value in space.values.get("torch", ())]
        usual = {value.version: space.cuda_major(value) for value in served if space.on_pypi(value)}
        space.pair(
            "package-beside-index-torch",
            (name, partial(_linked_with_index, tuple(usual.items()))),
            ("torch", lambda value: space.on_pypi(value) or value.version not in usual),
            lambda linked, served: served or not linked,
        )


@lru_cache(maxsize=8)
def last_with(matrix: Matrix, name: str) -> tuple[str, str]:
    """Return the newest torch that a companion was released with, and the companion's version."""
    rows = [(row.version, row.companions[name]) for row in matrix.torch.releases if name in row.companions]
    return max(rows, key=lambda row: parsed(row[0]))


def _asked_beyond(space: Space, name: str) -> bool:
    """Return whether the request pins a torch version, or another package requires the companion."""
    wish = space.named.get("torch")
    others = (other for other in PACKAGES if other in space.values and other != name)
    return bool(wish is not None and wish.specifier) or any(name in _names(space, other) for other in others)


def _companion(space: Space, name: str, value: TorchValue, *, beyond: bool) -> str | None:
    """Return a torch's companion; with `beyond`, a newer PyPI torch without one gets the last, which names no torch."""
    own = value.release.companions.get(name)
    made_for, last = last_with(space.matrix, name)
    later = beyond and own is None and parsed(value.version) > parsed(made_for) and space.on_pypi(value)
    return last if later else own


def _linked_with_index(usual: tuple[tuple[str, int], ...], value: PackageValue) -> bool:
    """Return whether a wheel's CUDA major is that of PyPI's build of some torch release that it accepts."""
    majors, wanted = cuda_majors(value), _asks("torch", value)
    return bool(majors) and any(major in majors and _meets(wanted, version) for version, major in usual)


def exact(text: str) -> str:
    """Return a bare version as a specifier, and any other text as it is."""
    return f"=={text}" if text[:1].isdigit() else text


def cuda_of(value: PackageValue) -> tuple[str, ...]:
    """Return the CUDA versions of which one must run: those of the wheel, else those of its extras."""
    return value.release.cuda or tuple(filter(None, map(major_of_extra, value.release.extras)))


def made_with(value: PackageValue) -> frozenset[int]:
    """Return the CUDA majors of whose compilers one made the code, linked in statically or not."""
    return frozenset(rules.major(minor) for minor in cuda_of(value))


def extra_majors(value: PackageValue) -> frozenset[int]:
    """Return the CUDA majors of which one is chosen by an extra; empty if the release has no such extras."""
    return frozenset(int(text) for text in map(major_of_extra, value.release.extras) if text)


def cuda_majors(value: PackageValue) -> frozenset[int]:
    """Return the CUDA majors that a wheel is linked with; empty if it links with none."""
    return frozenset(rules.major(minor) for minor in value.release.cuda) if value.release.linked else frozenset()


def _majors(space: Space, name: str) -> None:
    for other in _RUNTIMES:
        space.pair(
            "package-cuda-major",
            (name, cuda_majors),
            (other, space.cuda_major),
            lambda majors, major: not majors or major in majors,
        )


def _together(space: Space, name: str, other: str) -> None:
    if other not in space.values:
        return
    if other in _KNOWN:
        space.pair(
            "package-cuda-major",
            (name, cuda_majors),
            (other, cuda_majors),
            lambda one, two: not one or not two or bool(one & two),
        )
        for first, second in ((name, other), (other, name)):
            space.pair(
                "package-requires",
                (first, partial(_asks, second)),
                (second, lambda value: value.version),
                _meets,
                subject=second,
            )
    if other == "cupy":
        space.pair(
            "package-requires",
            (name, lambda value: tuple((key, text) for key, text in requires(value).items() if key.startswith("cupy"))),
            ("cupy", lambda value: (value.release.package, value.version)),
            lambda wanted, cupy: not wanted or any(key == cupy[0] and _meets(text, cupy[1]) for key, text in wanted),
            subject="cupy",
        )
        return
    shared = _names(space, name) & _names(space, other) - {*space.values}
    keys = partial(_pins_of, tuple(sorted(shared)))
    space.pair("package-pins-agree", (name, keys), (other, keys), lambda one, two: not clashes(dict(one), dict(two)))


def _asks(name: str, value: PackageValue) -> str:
    return value.release.requires.get(name, "any")


def _names(space: Space, component: str) -> set[str]:
    return {name for value in space.values[component] for name in requires(value)}


def _pins_of(names: Iterable[str], value: Value) -> tuple[tuple[str, str], ...]:
    wanted = requires(value)
    return tuple((name, wanted[name]) for name in names if name in wanted)


def requires(value: Value) -> Mapping[str, str]:
    """Return the known requirements of a release; for torch only those of PyPI's build are known."""
    if isinstance(value, PackageValue):
        return value.release.requires
    if isinstance(value, TorchValue):
        return value.release.pins if value.build.default else {}
    return value.release.pins if isinstance(value, TensorflowValue | JaxValue) else {}


def clashes(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the packages for which no version meets both sets of requirements."""
    return [name for name in first if name in second and not specifiers_meet(first[name], second[name])]


def _set(text: str) -> Any:
    plain = exact(text.rpartition("]")[2].strip())
    if plain in {"", "any"}:
        return None
    try:
        return domains.specifiers(plain)
    except ValueError:  # not of PEP 440
        return None


@lru_cache(maxsize=16384)
def _meets(specifier: str, version: str) -> bool:
    wanted = _set(specifier)
    return wanted is None or wanted.contains(parsed(version))


@lru_cache(maxsize=4096)
def specifiers_meet(first: str, second: str) -> bool:
    """Return whether one version could meet both; tries each bound and a version just above it."""
    one, two = _set(first), _set(second)
    if one is None or two is None:
        return True
    bounds = {part.version.removesuffix(".*") for part in (*one, *two)}
    try:
        tried = [parsed(text) for text in ("0", *bounds)]
        tried += [parsed(f"{version.base_version}.0.0.1") for version in tried]
    except ValueError:
        return True
    return any(one.contains(version) and two.contains(version) for version in tried)
