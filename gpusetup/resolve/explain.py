"""The one writer of refusals: a conflict as plain sentences, each with its rule and its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from packaging.specifiers import SpecifierSet

from gpusetup.model.request import LibraryCandidates
from gpusetup.resolve import rules
from gpusetup.resolve.domains import DriverValue, TorchValue, Value, parsed
from gpusetup.resolve.hardware import code_of
from gpusetup.resolve.search import Pair, Unary, bits
from gpusetup.resolve.sources import rule_source
from gpusetup.resolve.space import FRAMEWORKS
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpusetup.matrix.gpus import GpuKind
    from gpusetup.model.request import Requirement
    from gpusetup.resolve.space import Space

__all__ = ["conflict", "label", "nearest", "published_versions", "span"]

_NAMES = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL", "cupy": "CuPy", "tensorflow": "TensorFlow", "jax": "JAX"}


class _Context:
    """What the other members of a conflict leave possible, so that sentences speak of those values."""

    def __init__(self, space: Space, members: Sequence[Unary | Pair]) -> None:
        self.space = space
        self.members = members
        self.masks = {name: (1 << len(values)) - 1 for name, values in space.values.items()}
        for member in members:
            if isinstance(member, Unary) and member.origin == "request":
                self.masks[member.scope[0]] &= member.allowed

    def values(self, component: str) -> list[Value]:
        """Return the values of a component that the request leaves; all when it leaves none."""
        values = self.space.values[component]
        return [values[index] for index in bits(self.masks[component])] or list(values)

    def narrow(self, component: str) -> bool:
        """Tell whether the request narrows the component down."""
        return self.masks[component].bit_count() < len(self.space.values[component])


def title(component: str) -> str:
    """Return a component's name as people write it."""
    return _NAMES.get(component, component)


def label(component: str, value: Value) -> str:
    """Return a value as people write it."""
    if isinstance(value, TorchValue):
        return f"torch {value.version}+{value.build.variant}"
    return f"{title(component)} {value.version}"


def span(versions: Iterable[str]) -> str:
    """Return versions as a short range."""
    ordered = sorted(set(versions), key=parsed)
    if len(ordered) <= 3:
        return ", ".join(ordered)
    return f"{ordered[0]} to {ordered[-1]}"


def conflict(space: Space, members: Sequence[Unary | Pair]) -> list[dict[str, str]]:
    """Return a conflict as documents: rule, text, source."""
    context = _Context(space, members)
    told = []
    for member in members:
        text = _WRITERS.get(member.rule, _general)(context, member)
        source = "" if member.origin == "request" else rule_source(space.matrix, member.rule)
        item = {"rule": member.rule, "text": text, "source": source}
        if item not in told:
            told.append(item)
    return told


def _allowed(context: _Context, member: Unary) -> list[Value]:
    values = context.space.values[member.scope[0]]
    return [values[index] for index in bits(member.allowed)]


def _general(context: _Context, member: Unary | Pair) -> str:
    from gpusetup.resolve.sources import rule_text

    names = " and ".join(title(name) for name in member.scope)
    return rule_text(context.space.matrix, member.rule) or f"{names}: {member.rule.replace('-', ' ')}"


def _requested(context: _Context, member: Unary) -> str:
    wish = cast("Requirement", member.subject)
    if member.allowed:
        return f"{wish} was asked for"
    matrix = context.space.matrix
    text = f"nobody published {wish}"
    bounds = [part.version.removesuffix(".*") for part in sorted(SpecifierSet(wish.specifier), key=str)]
    windows = {windows: linux for linux, windows in matrix.driver.windows_numbers.items()}
    for bound in bounds if wish.component == "driver" else ():
        if bound in windows:
            text += f"; {bound} is the Windows number of Linux driver {windows[bound]}"
    if wish.variant:
        builds = {
            value.build.variant
            for value in context.space.values["torch"]
            if isinstance(value, TorchValue) and value.version in bounds
        }
        if builds:
            return f"nobody published {wish}; torch {bounds[0]} has the builds {', '.join(sorted(builds))}"
    published = published_versions(context.space, wish.component)
    near = nearest(published, bounds[0]) if bounds else published[-3:]
    return text + f"; the nearest are {', '.join(near)}"


def published_versions(space: Space, component: str) -> list[str]:
    """Return every version of a component that somebody published for Linux, oldest first."""
    if component == "driver":
        return sorted((item.version for item in space.matrix.driver.versions if item.platform == "linux"), key=nv)
    return sorted({value.version for value in space.values[component]}, key=parsed)


def nearest(published: list[str], wanted: str) -> list[str]:
    """Return up to three versions around the wanted one, of the same series where there are some."""
    below = [text for text in published if parsed(text) < parsed(wanted)]
    above = [text for text in published if parsed(text) > parsed(wanted)]
    return [*below[-2:], *above[:1]] if above else below[-3:]


def _stays(context: _Context, member: Unary) -> str:
    values = cast("list[DriverValue]", context.values("driver"))
    cuda = f", CUDA {values[0].branch.cuda}" if values and values[0].branch.cuda else ""
    return f"driver {member.subject} is installed and stays (R{nv(str(member.subject)).major}{cuda})"


def _offers(_: _Context, member: Unary) -> str:
    if isinstance(member.subject, LibraryCandidates):
        versions = span(version for version, _cuda in member.subject.builds)
        return f"this host's repositories offer only {title(member.subject.component)} {versions or 'in no version'}"
    offered = [f"{item.version} ({' or '.join(item.modules)} module)" for item in member.subject.driver_candidates]
    return "this host's repositories offer only driver " + (", ".join(offered) or "none at all")


def _window(_: _Context, member: Unary) -> str:
    gpu: GpuKind = member.subject
    parts = []
    if gpu.min_branch is not None:
        parts.append(f"R{gpu.min_branch} is the first driver branch for it")
    if gpu.last_branch is not None:
        parts.append(f"R{gpu.last_branch} is the last driver branch for it")
    return f"{gpu.label} is {gpu.arch}: " + " and ".join(parts)


def _module(_: _Context, member: Unary) -> str:
    gpu: GpuKind = member.subject
    if gpu.module == "required":
        return f"{gpu.label} ({gpu.arch}) works only with the open kernel modules"
    return f"{gpu.label} ({gpu.arch}) works only with the proprietary kernel modules"


def _product_floor(_: _Context, member: Unary) -> str:
    gpu: GpuKind = member.subject
    return f"{gpu.label} is listed from driver {gpu.min_driver} on"


def _gpu_span(context: _Context, member: Unary) -> str:
    gpu: GpuKind = member.subject
    component = member.scope[0]
    if component == "torch" and context.narrow("torch"):
        return _torch_code(context, gpu)
    fitting = [value.version for value in _allowed(context, member)]
    if not fitting:
        where = f" on {context.space.arch}" if component in FRAMEWORKS else ""
        return f"no {title(component)} release has code for compute capability {gpu.cc} ({gpu.label}){where}"
    verb = {"cuda": "targets", "cudnn": "supports"}.get(component, "has code for")
    return f"{title(component)} {verb} compute capability {gpu.cc} ({gpu.label}) in {span(fitting)}"


def _torch_code(context: _Context, gpu: GpuKind) -> str:
    parts = []
    for value in cast("list[TorchValue]", context.values("torch"))[-3:]:
        code = code_of(context.space, value)
        listed = ", ".join(code.targets) if code else "nothing known"
        parts.append(f"{label('torch', value)} has code for {listed}")
    return f"{gpu.label} has compute capability {gpu.cc}; " + "; ".join(parts)


def _driver_runs(context: _Context, member: Pair) -> str:
    component = member.scope[1]
    values, drivers = context.values(component), cast("list[DriverValue]", context.values("driver"))
    needs = {context.space.need(value) for value in values}
    minors = sorted({need[0] for need in needs}, key=nv)
    what = f"CUDA {' and '.join(minors) if len(minors) <= 2 else f'{minors[0]} to {minors[-1]}'}"
    if component != "cuda":
        shown = [label(component, value) for value in values]
        what += (
            f" inside {', '.join(shown)}"
            if len(shown) <= 2
            else f" inside {title(component)} {span(v.version for v in values)}"
        )
    return f"{what} needs {_floor_of(context, minors)}" + _too_old(context, drivers)


def _floor_of(context: _Context, minors: list[str]) -> str:
    matrix, lowest = context.space.matrix, minors[0]
    minor, branch, listed = rules.need_of_minor(matrix, lowest)
    own = f"driver {listed}" if listed else f"a driver of R{branch}"
    if context.space.request.native:
        return f"{own} or newer to run natively"
    floor = next((row.min_driver for row in matrix.cuda.majors if row.major == rules.major(minor)), None)
    if floor is None or rules.major(minor) < rules.FIRST_WITH_MINOR_COMPATIBILITY:
        return f"{own} or newer"
    return f"driver {floor} or newer (minor-version compatibility of CUDA {rules.major(minor)})"


def _too_old(context: _Context, drivers: list[DriverValue]) -> str:
    if not context.narrow("driver"):
        return ""
    return f"; the driver here is {span(value.version for value in drivers)}"


def _one_major(context: _Context, member: Pair) -> str:
    parts = []
    for component in member.scope:
        values = context.values(component)
        if component == "cupy":
            majors = {rules.major(minor) for value in values for minor in cast("Any", value).release.cuda}
        else:
            majors = {context.space.cuda_major(value) for value in values}
        shown = label(component, values[0]) if len(values) == 1 else title(component)
        parts.append(f"{shown} is for CUDA {' or '.join(map(str, sorted(majors)))}")
    return "one environment holds one CUDA major, and " + " while ".join(parts)


def _cudnn_cuda(context: _Context, _: Pair) -> str:
    values = cast("Any", context.values("cudnn"))
    listed = sorted({minor for value in values for minor in value.row.cuda}, key=nv)
    return f"cuDNN {span(value.version for value in values)} is supported with CUDA {span(listed)}"


def _cudnn_driver(context: _Context, _: Pair) -> str:
    floors = {value.row.min_driver for value in cast("Any", context.values("cudnn")) if value.row.min_driver}
    return f"cuDNN needs driver {min(floors, key=nv)} or newer"


def _torch_cudnn(context: _Context, _: Pair) -> str:
    parts = [
        f"{label('torch', value)} brings cuDNN {value.build.cudnn}"
        for value in cast("Any", context.values("torch"))[-3:]
    ]
    return "; ".join(parts) + "; a second cuDNN in the same environment shadows it"


def _framework_cudnn(context: _Context, member: Pair) -> str:
    name = member.scope[0]
    value = cast("Any", context.values(name))[-1]
    major = context.space.cuda_major(value)
    pin = value.release.pins.get(f"nvidia-cudnn-cu{major}", f"for CUDA {major}")
    return f"{label(name, value)} requires cuDNN {pin}"


def _pins(context: _Context, member: Pair) -> str:
    names = [label(name, context.values(name)[-1]) for name in member.scope]
    return f"{names[0]} and {names[1]} pin different versions of the same CUDA wheels"


def _python_tag(context: _Context, member: Pair) -> str:
    from gpusetup.resolve.constraints import python_tags

    name = member.scope[0]
    offered = {tag for value in context.values(name) for tag in python_tags(context.space.arch)(value)}
    values = context.values(name)
    shown = label(name, values[0]) if len(values) == 1 else f"{title(name)} {span(value.version for value in values)}"
    return (
        f"{shown} has wheels for Python {span(tag.rstrip('t') for tag in offered)}"
        if offered
        else _general(context, member)
    )


def _distribution_python(_: _Context, member: Unary) -> str:
    return f"{member.subject.name} brings Python {member.subject.python}"


def _glibc(context: _Context, member: Unary) -> str:
    name = member.scope[0]
    needed = sorted({cast("Any", value).release.glibc for value in context.values(name)}, key=nv)
    return f"{title(name)} wheels need glibc {span(needed)}; {member.subject.name} has {member.subject.glibc}"


def _distribution_cuda(_: _Context, member: Unary) -> str:
    system = member.subject
    parts = [
        f"from {system.cuda_min}" if system.cuda_min else "",
        f"up to {system.cuda_max}" if system.cuda_max else "",
    ]
    return f"NVIDIA's repository for {system.name} has CUDA " + " ".join(part for part in parts if part)


def _cpu(_: _Context, member: Unary) -> str:
    system, arch = member.subject
    return f"{system.name} is set up on {', '.join(system.arches)}, not on {arch}"


def _beside_cpu(_: _Context, member: Unary) -> str:
    gpu, arch = member.subject
    return f"{gpu.label} exists only beside {gpu.only_cpu} CPUs, and {arch} was asked for"


def _wheel_cpu(context: _Context, member: Unary) -> str:
    name = member.scope[0]
    fitting = [value.version for value in _allowed(context, member)]
    where = f"in {span(fitting)} only" if fitting else "in no release"
    return f"{title(name)} has CUDA wheels for {member.subject} {where}"


def _jax_floor(context: _Context, _: Pair) -> str:
    floors = sorted({value.release.min_driver for value in cast("Any", context.values("jax"))}, key=nv)
    return f"JAX needs driver {floors[0]} or newer"


def _ptx(_: _Context, member: Pair) -> str:
    gpu: GpuKind = member.subject
    return (
        f"{title(member.scope[1])} reaches {gpu.label} through PTX only, which the driver must compile: "
        "it has to be as new as the build's CUDA"
    )


_WRITERS: dict[str, Callable[[_Context, Any], str]] = {
    "requested": _requested,
    "installed-driver-stays": _stays,
    "repository-offers": _offers,
    "gpu-driver-window": _window,
    "module-flavour": _module,
    "gpu-product-floor": _product_floor,
    "toolkit-targets-gpu": _gpu_span,
    "cudnn-support-row": _gpu_span,
    "cupy-gpu-window": _gpu_span,
    "nccl-gpu-code": _gpu_span,
    "torch-needs-code-for-gpu": _gpu_span,
    "framework-needs-code-for-gpu": _gpu_span,
    "driver-runs-cuda": _driver_runs,
    "one-cuda-major": _one_major,
    "cudnn-takes-cuda": _cudnn_cuda,
    "cudnn-driver-floor": _cudnn_driver,
    "torch-pins-cudnn": _torch_cudnn,
    "framework-takes-cudnn": _framework_cudnn,
    "framework-pins-agree": _pins,
    "python-tag": _python_tag,
    "distribution-python": _distribution_python,
    "glibc-tag": _glibc,
    "distribution-has-cuda": _distribution_cuda,
    "distribution-cpu": _cpu,
    "gpu-only-beside-cpu": _beside_cpu,
    "wheel-for-cpu": _wheel_cpu,
    "jax-driver-floor": _jax_floor,
    "ptx-needs-native-driver": _ptx,
}
