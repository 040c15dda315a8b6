"""Sentences for the rules about packages above the frameworks, and about a stack's Python."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, cast

import msgspec

from gpusetup.model.stack import Reason
from gpusetup.resolve import rules
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import PackageValue, TorchValue, Value, number, parsed
from gpusetup.resolve.naming import cite, label, rule_source, span
from gpusetup.resolve.packages import COMPANIONS, clashes, cuda_majors, cuda_of, exact, last_with, made_with, requires
from gpusetup.resolve.preferences import best
from gpusetup.resolve.search import Pair, Unary
from gpusetup.resolve.space import FRAMEWORKS, OTHERS, Space, own_python, pythons
from gpusetup.versions import nv


class Context(Protocol):
    """The input of a sentence; `candidate` names the component whose single candidate is judged, else it is empty."""

    space: Space
    candidate: str

    def values(self, component: str) -> list[Value]:
        """Return the remaining values of a component."""

    def narrow(self, component: str) -> bool:
        """Return whether other rules exclude some of the component's values."""


def _newest(context: Context, component: str) -> Any:
    """Return the newest remaining final release, else the newest pre-release."""
    values = context.values(component)
    return max(values, key=lambda value: (not parsed(value.version).is_prerelease, parsed(value.version)))


def _named(context: Context, component: str) -> str:
    values = context.values(component)
    versions = {value.version for value in values}
    if len(versions) == 1:
        return label(component, values[0])
    return f"{component} {span(versions)}"


def _built(context: Context, member: Unary) -> str:
    name, value = member.scope[0], cast("PackageValue", member.subject)
    text = f"the index has no wheel of {name} {value.version}: it has to be built on the host (--allow-builds)"
    text += f", which needs {value.file.build}" if value.file.build and "stub" not in value.file.build else ""
    text += f"; {value.file.build}" if "stub" in value.file.build else ""
    wheels = [item.version for item in context.space.values[name] if cast("Any", item).release.kind == "wheel"]
    return text + (f"; wheels exist of {span(wheels)}" if wheels and not context.candidate else "")


def _too_far_behind(_: Context, member: Unary) -> str:
    alone = cast("PackageValue", member.subject)
    return (
        f"{alone.file.name} alone would be {alone.version} of {alone.release.date}; releases more than three months "
        "older are chosen only by name"
    )


def _cpu(context: Context, member: Unary) -> str:
    name, arch = member.scope[0], cast("Any", member.subject)
    values = cast("list[PackageValue]", context.space.values[name])
    wheels = [value.version for value in values if value.release.kind == "wheel" and arch in value.release.pythons]
    return f"{name} has wheels for {arch} in {span(wheels) if wheels else 'no release'}"


def _glibc(context: Context, member: Unary) -> str:
    name, system, arch = member.scope[0], member.subject, cast("Any", context.space.arch)
    needed = {text for value in context.values(name) if (text := cast("Any", value).release.glibc.get(arch))}
    return f"{_named(context, name)} needs glibc {span(needed)}; {system.name} has {system.glibc}"


def _gpu_floor(context: Context, member: Unary) -> str:
    gpu = member.subject
    floors = {cc for value in context.values(member.scope[0]) if (cc := cast("Any", value).release.cc_min)}
    least = min(floors, key=nv) if floors else "a newer GPU"
    return f"{_named(context, member.scope[0])} needs compute capability {least}; {gpu.label} has {gpu.cc}"


def _gpu_compiler(context: Context, member: Unary) -> str:
    gpu, value = member.subject, _newest(context, member.scope[0])
    major = min(made_with(value))
    compilers = [row for row in context.space.matrix.cuda.toolchains if rules.major(row.minor) == major]
    lowest = min((row.cc_min for row in compilers), key=nv)
    made = f"is built with CUDA {major}, which makes code from compute capability {lowest} on"
    return f"{label(member.scope[0], value)} {made}; {gpu.label} has {gpu.cc}"


def _gpu_code(context: Context, member: Unary) -> str:
    gpu, code = member.subject, _newest(context, member.scope[0]).release.code
    targets = f"has code for {', '.join(code.targets)}" if code else "lacks code"
    return f"{_named(context, member.scope[0])} {targets}, not for compute capability {gpu.cc} ({gpu.label})"


def _driver(context: Context, member: Pair) -> str:
    name = member.scope[1]
    values = cast("list[PackageValue]", context.values(name))
    majors = sorted({rules.major(cuda) for value in values for cuda in cuda_of(value)})
    floors = {row.major: row.min_driver for row in context.space.matrix.cuda.majors}
    told = " and ".join(f"CUDA {major}, which needs driver {floors[major]} or newer" for major in majors[:2])
    here = span(value.version for value in context.values("driver")) if context.narrow("driver") else ""
    does = "is built for" if any(value.release.linked for value in values) else "brings libraries of"
    return f"{_named(context, name)} {does} {told}" + (f"; the driver here is {here}" if here else "")


def _driver_floor(context: Context, member: Pair) -> str:
    value = _newest(context, member.scope[1])
    here = span(item.version for item in context.values("driver")) if context.narrow("driver") else ""
    told = f"{label(member.scope[1], value)} needs driver {value.release.driver_min} or newer"
    return told + (f"; the driver here is {here}" if here else "")


def _requires(context: Context, member: Pair) -> str:
    first, second = member.scope
    values = context.values(first)
    texts = {text: value for value in values if (text := cast("Any", value).release.requires.get(second))}
    if len(values) > 1 and len(texts) > 1:
        newest = _newest(context, first)
        wanted = newest.release.requires.get(second, "any")
        its_own = _requirement_text(second, wanted)
        return f"each release of {first} asks for its own {second}: {first} {newest.version} for {its_own}"
    wanted = next(iter(texts), "any")
    here = f"; {second} here is {span(v.version for v in context.values(second))}" if context.narrow(second) else ""
    return f"{_named(context, first)} asks for {_requirement_text(second, wanted)}{here}"


def _requirement_text(name: str, specifier: str) -> str:
    return name if specifier == "any" else f"{name}{specifier}"


def _companion(context: Context, member: Pair) -> str:
    name = member.scope[0]
    torch = cast("TorchValue", _newest(context, "torch"))
    own = torch.release.companions.get(name)
    belongs = f"{name} {own}" if own else f"no {name}"
    return f"every {name} belongs to one torch: with torch {torch.version} goes {belongs}"


def _major(context: Context, member: Pair) -> str:
    return ", and ".join(_major_of(context, name) for name in member.scope) + ": one of the two would not load"


def _major_of(context: Context, component: str) -> str:
    values = context.values(component)
    if component == "torch":  # a package from PyPI runs with PyPI's torch
        values = [value for value in values if context.space.on_pypi(cast("TorchValue", value))] or values
    value = max(values, key=lambda item: parsed(item.version))
    verb = "is linked with" if isinstance(value, PackageValue) else "brings"
    return f"{label(component, value)} {verb} CUDA {' or '.join(map(str, sorted(_majors(context, value))))}"


def _majors(context: Context, value: Value) -> frozenset[int]:
    if isinstance(value, PackageValue):
        return cuda_majors(value)
    return frozenset((context.space.cuda_major(value),))


def _pins(context: Context, member: Pair) -> str:
    first, second = (_newest(context, name) for name in member.scope)
    one, two = requires(first), requires(second)
    found = clashes(one, two)
    if not found:
        return f"no release of {member.scope[0]} goes with one of {member.scope[1]}: they pin the same packages apart"
    pins = [
        f"{label(member.scope[0], first)} asks for {name}{exact(one[name])}, "
        f"{label(member.scope[1], second)} for {name}{exact(two[name])}"
        for name in _clearest_pins(found, one, two)
    ]
    return "; ".join(pins)


def _clearest_pins(found: list[str], one: Any, two: Any) -> Iterator[str]:
    """Yield up to two clashing pins, preferably ones that are exact on both sides."""
    exact = [name for name in found if one[name].startswith("==") and two[name].startswith("==")]
    yield from (exact or found)[:2]


WRITERS: dict[str, Callable[[Any, Any], str]] = {
    "package-built-from-source": _built,
    "package-recency": _too_far_behind,
    "package-for-cpu": _cpu,
    "package-glibc": _glibc,
    "package-gpu-floor": _gpu_floor,
    "package-cuda-for-gpu": _gpu_compiler,
    "package-driver-floor": _driver_floor,
    "package-code-for-gpu": _gpu_code,
    "package-cuda-needs-driver": _driver,
    "package-requires": _requires,
    "torch-companion": _companion,
    "package-cuda-major": _major,
    "package-pins-agree": _pins,
}


def package_warnings(space: Space, solution: Mapping[str, Value]) -> Iterator[str]:
    """Yield what is unknown about a package on these GPUs, and what must be done besides installing it."""
    for name, value in solution.items():
        if not isinstance(value, PackageValue):
            continue
        release = value.release
        if release.cuda and release.code is None and release.cc_min is None:
            for gpu in space.gpus:
                yield f"nobody published which GPUs {name} {value.version} has code for: try it on {gpu.label}"
        for gpu in space.gpus:
            if release.code is not None and rules.way_of(release.code.targets, release.code.ptx, gpu.cc) == "ptx":
                yield f"{name} {value.version} has only PTX for {gpu.label}: the first start compiles it"
        if name in COMPANIONS and (torch := cast("TorchValue | None", solution.get("torch"))) is not None:
            made_for, last = last_with(space.matrix, name)
            if torch.release.companions.get(name) is None:
                yield f"{name} {last} is the last one: it was released with torch {made_for} and names no torch"
        if release.kind == "source":
            how = value.file.build
            yield f"{name} {value.version} is built on the host" + (f": {how}" if how else "")
        bare = not release.extras and any(other.extras for other in value.file.releases)
        if bare and release.cuda and "torch" not in solution:
            yield f"{name} {value.version} installs no CUDA libraries: it needs CUDA {release.cuda[0]} and its cuDNN"
        for other in release.adds:
            yield f"{name} opens libraries of {other}, without requiring it: gpusetup installs it too"


_LONG = 12
"""Warn when the release is at least this many months older than the one another Python would allow."""


def python_reasons(space: Space, solution: Mapping[str, Value]) -> Iterator[Reason]:
    """Yield where a Python other than the system's default comes from."""
    if "python" not in solution or space.os is None:
        return
    version, system = solution["python"].version, space.os
    row = system.packaged(version)
    if row is None or version == own_python(space):
        return
    text = f"{version} is {system.name}'s own package {row.packages[0]}; its base Python is {own_python(space)}"
    source = cite(space.matrix, "python", row) or rule_source(space.matrix, "distribution-python")
    yield Reason(component="python", rule="distribution-python", text=text, source=source)


def python_warnings(space: Space, solution: Mapping[str, Value]) -> Iterator[str]:
    """Yield warnings about an unknown or unpackaged Python, and about one that limits a framework to old releases."""
    if "python" not in solution or space.os is None:
        return
    version, system = solution["python"].version, space.os
    row, known = system.packaged(version), pythons(space)
    if not known and "python" not in space.named:
        yield f"{system.name}: nobody published which Python it has; this stack takes the range above"
    elif known and version not in known and row is None:
        yield f"{system.name} has no package of Python {version}; uv installs one: {_uv(version)}"
    elif row is not None and row.prerelease:
        yield f"{system.name}'s package of Python {version} is {row.note}"
    if known and "python" not in space.named:
        yield from _held_back(space, solution)


def _uv(version: str) -> str:
    return f"uv venv --managed-python --python {version} ~/gpu"


def _held_back(space: Space, solution: Mapping[str, Value]) -> Iterator[str]:
    """Yield a warning for each framework that another Python would allow in a release at least a year newer."""
    late = {name: solution[name] for name in FRAMEWORKS if name in space.named and _is_late(space, name, solution)}
    if not late:
        return
    better = best(build(space.matrix, msgspec.structs.replace(space.request, pythons=OTHERS)))
    for name, value in late.items():
        if better is not None and _months(better[name]) - _months(value) >= _LONG:
            wish = better["python"].version
            assert space.os is not None  # noqa: S101 - only a distribution limits the Pythons
            yield (
                f"the newest Python of {space.os.name} here is {solution['python'].version}, which limits {name} to "
                f"{value.version} ({_date(value)}); Python {wish} allows {name} {better[name].version} "
                f"({_date(better[name])}). Install it without root: {_uv(wish)}; then ask for python=={wish}"
            )


def _is_late(space: Space, name: str, solution: Mapping[str, Value]) -> bool:
    newest = max(space.values[name], key=lambda value: (_months(value), number(value)))
    return _months(newest) - _months(solution[name]) >= _LONG


def _date(value: Any) -> str:
    text: str = value.release.date
    return text[: len("2026-01")]


def _months(value: Any) -> int:
    year, _, month = _date(value).partition("-")
    return 12 * int(year) + int(month) if year.isdigit() and month.isdigit() else 0
