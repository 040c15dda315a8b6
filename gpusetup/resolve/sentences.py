"""One sentence per rule: what it forbids, in terms of the values that the other rules leave."""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import msgspec

from gpusetup.errors import shipped
from gpusetup.matrix.gpus import GpuKind
from gpusetup.model.request import BUILT_FOR, LibraryCandidates, Requirement
from gpusetup.resolve import rules
from gpusetup.resolve.constraints import python_tags
from gpusetup.resolve.domains import DriverValue, JaxValue, TorchValue, Value, branch_of, parsed, specifiers
from gpusetup.resolve.hardware import code_of
from gpusetup.resolve.naming import (
    alone,
    label,
    last_before,
    listed,
    nearest,
    only_module,
    published_versions,
    rule_text,
    span,
    title,
)
from gpusetup.resolve.package_sentences import WRITERS, Context
from gpusetup.resolve.policy import KEYS, allowed
from gpusetup.resolve.search import Pair, Unary, bits
from gpusetup.resolve.space import FRAMEWORKS
from gpusetup.versions import nv


def sentence(context: Context, member: Unary | Pair) -> str:
    """Return the sentence for a rule in this context."""
    if member.rule in KEYS:
        return allowed(member.subject, member.rule, member.scope[0])
    if text := _texts().get(member.rule):
        it = "it" if context.candidate else title(member.scope[-1])
        return text.format(name=member.scope[0], it=it, subject=member.subject)
    return (_WRITERS.get(member.rule) or WRITERS.get(member.rule) or _general)(context, member)


@cache
def _texts() -> dict[str, str]:
    return msgspec.json.decode(shipped("resolve/sentences.json"), type=dict[str, str])


def _allowed(context: Context, member: Unary) -> list[Value]:
    values = context.space.values[member.scope[0]]
    return [values[index] for index in bits(member.allowed)]


def _general(context: Context, member: Unary | Pair) -> str:
    names = " and ".join(title(name) for name in member.scope)
    return rule_text(context.space.matrix, member.rule) or f"{names}: {member.rule.replace('-', ' ')}"


def _requested(context: Context, member: Unary) -> str:
    wish = cast("Requirement", member.subject)
    if member.allowed:
        return f"{wish} was asked for" + alone(wish, context.space.matrix).replace(f"{wish} is", ":")
    matrix = context.space.matrix
    text = f"there is no {wish}"
    bounds = [part.version.removesuffix(".*") for part in sorted(specifiers(wish.specifier), key=str)]
    for release, _, suffix in (bound.partition("+") for bound in bounds):
        if suffix and (builds := _builds_of(context, wish.component, release)):
            where = ": https://download.pytorch.org/whl/cpu has it" if suffix == "cpu" else ""
            text = f"{wish} is a build without code for NVIDIA GPUs{where}"
            return f"{text}; torch {release} has the builds {', '.join(builds)}"
    windows = {windows: linux for linux, windows in matrix.driver.windows_numbers.items()}
    for bound in bounds if wish.component == "driver" else ():
        if bound in windows:
            text += f"; {bound} is the Windows number of Linux driver {windows[bound]}"
        elif bound in matrix.driver.never_released:
            text += f"; tutorials name {bound}, but NVIDIA never published it"
    if wish.variant and bounds and (builds := _builds_of(context, wish.component, bounds[0])):
        return f"there is no {wish}; {title(wish.component)} {bounds[0]} has the builds {', '.join(builds)}"
    published = published_versions(context.space, wish.component)
    known = text != f"there is no {wish}"  # the text already explains it
    if bounds and not known and (limit := _limit_of_matrix(published, bounds, wish.component)):
        return f"the matrix of {matrix.date} has no {limit}: it does not know {wish}"
    if len(bounds) > 1 and not known:
        text = f"no release of {title(wish.component)} is {' and '.join(sorted(wish.specifier.split(',')))}"
    near = nearest(published, bounds[0]) if bounds else published[-3:]
    return text + f"; the nearest are {', '.join(near)}"


def _limit_of_matrix(published: list[str], bounds: list[str], component: str) -> str:
    """Return where the matrix ends if everything requested is newer or older than that, else an empty string.

    The matrix cannot know whether such a release exists. A driver is compared within its branch.
    """
    wanted = [parsed(bound) for bound in bounds]
    if all(bound < parsed(published[0]) for bound in wanted):
        return f"{title(component)} older than {published[0]}"
    last = last_before(published, component, wanted)
    of_branch = f" of R{wanted[0].major}" if last and last != published[-1] else ""
    return f"{title(component)}{of_branch} newer than {last}" if last else ""


def _builds_of(context: Context, component: str, release: str) -> list[str]:
    space = context.space
    found = (
        space.builds(value)
        for value in space.values.get(component, ())
        if f"{value.version}.".startswith(f"{release}.")
    )
    return sorted({name for names in found for name in names})


def _stays(context: Context, member: Unary) -> str:
    branch = branch_of(context.space.matrix, str(member.subject))
    cuda = f", CUDA {branch.cuda}" if branch is not None and branch.cuda else ""
    return f"driver {member.subject} is installed and stays (R{nv(str(member.subject)).major}{cuda})"


def _offers(_: Context, member: Unary) -> str:
    if isinstance(member.subject, LibraryCandidates):
        name, offered = title(member.subject.component), span(version for version, _cuda in member.subject.builds)
    else:
        each = (f"{item.version} ({' or '.join(item.modules)} module)" for item in member.subject.driver_candidates)
        name, offered = "driver", ", ".join(each)
    return f"this host's repositories offer {f'only {name} {offered}' if offered else f'no {name}'}"


def _window(_: Context, member: Unary) -> str:
    gpu: GpuKind = member.subject
    parts = []
    if gpu.min_branch is not None:
        parts.append(f"R{gpu.min_branch} is the first driver branch for it")
    if gpu.last_branch is not None:
        parts.append(f"R{gpu.last_branch} is the last driver branch for it")
    return f"{gpu.label} is {gpu.arch}: " + " and ".join(parts)


def _gpu_span(context: Context, member: Unary) -> str:
    gpu: GpuKind = member.subject
    component = member.scope[0]
    if component in FRAMEWORKS and (context.candidate or context.narrow(component)):
        return _code(context, component, gpu)
    wish = context.space.named.get(component)
    name, able = title(component), _allowed(context, member)
    if component in BUILT_FOR and wish is not None and wish.variant:
        name = str(Requirement(component=component, variant=wish.variant))
        able = [value for value in able if wish.variant in context.space.builds(value)]
    fitting = list(dict.fromkeys(value.version for value in able))
    verb = {"cuda": "target", "cudnn": "support"}.get(component, "have code for")
    if context.candidate:
        return f"it does not {verb} compute capability {gpu.cc} ({gpu.label}){_nearest_that_does(context, fitting)}"
    if not fitting:
        where = f" on {context.space.arch}" if component in FRAMEWORKS else ""
        return f"no {name} release has code for compute capability {gpu.cc} ({gpu.label}){where}"
    verb = {"cuda": "targets", "cudnn": "supports"}.get(component, "has code for")
    return f"{name} {verb} compute capability {gpu.cc} ({gpu.label}) in {span(fitting)}"


def _nearest_that_does(context: Context, fitting: list[str]) -> str:
    """Name the nearest release that passes, for a candidate that fails."""
    own = parsed(context.values(context.candidate)[0].version)
    older = [version for version in fitting if parsed(version) < own]
    if older:
        return f"; the last that does is {max(older, key=parsed)}"
    return f"; the first that does is {min(fitting, key=parsed)}" if fitting else ""


def _code(context: Context, component: str, gpu: GpuKind) -> str:
    space, parts = context.space, []
    for value in context.values(component)[-3:]:
        code = code_of(space, value)
        name = "it" if context.candidate else label(component, value)
        if code is not None:
            parts.append(f"{name} has code for {', '.join(code.targets)}")
        elif isinstance(value, TorchValue) and value.build.code:
            parts.append(f"{name} has no CUDA wheel for {space.arch}")
        else:
            parts.append(f"it is not published which GPUs {name} has code for")
    told = "; ".join(parts)
    if context.candidate:
        return f"{told}, not for compute capability {gpu.cc} ({gpu.label})" if " has code " in told else told
    return f"{gpu.label} has compute capability {gpu.cc}; {told}"


def _jax_gpu_floor(context: Context, member: Unary) -> str:
    gpu: GpuKind = member.subject
    floors = {cast("JaxValue", value).release.min_cc for value in context.values("jax")}
    name = "it" if context.candidate else title("jax")
    return (
        f"{name} supports GPUs of compute capability {min(floors, key=nv)} or newer, whatever code its wheel holds; "
        f"{gpu.label} has {gpu.cc}"
    )


def _driver_runs(context: Context, member: Pair) -> str:
    component = member.scope[1]
    values, drivers = context.values(component), cast("list[DriverValue]", context.values("driver"))
    needs = {context.space.need(value) for value in values}
    minors = sorted({need[0] for need in needs}, key=nv)
    if len({rules.major(minor) for minor in minors}) > 1:
        return _floors(context, minors) + _too_old(context, drivers)
    what = f"CUDA {' and '.join(minors) if len(minors) <= 2 else f'{minors[0]} to {minors[-1]}'}"
    if component != "cuda":
        shown = [label(component, value) for value in values]
        what += (
            f" inside {', '.join(shown)}"
            if len(shown) <= 2
            else f" inside {title(component)} {span(v.version for v in values)}"
        )
    return f"{what} needs {_floor_of(context, minors)}" + _too_old(context, drivers)


def _floors(context: Context, minors: list[str]) -> str:
    parts = []
    for major in sorted({rules.major(minor) for minor in minors}):
        least = _floor_of(context, [minor for minor in minors if rules.major(minor) == major])
        parts.append(f"CUDA {major} needs {least.partition(' (')[0]}")
    return listed(parts)


def _floor_of(context: Context, minors: list[str]) -> str:
    matrix, lowest = context.space.matrix, minors[0]
    minor, branch, listed = rules.need_of_minor(matrix, lowest)
    own = f"driver {listed}" if listed else f"a driver of R{branch}"
    if context.space.request.native:
        return f"{own} or newer to run natively"
    floor = next((row.min_driver for row in matrix.cuda.majors if row.major == rules.major(minor)), None)
    if floor is None or rules.major(minor) < rules.FIRST_WITH_MINOR_COMPATIBILITY:
        return f"{own} or newer"
    of = next((gpu.label for gpu in context.space.gpus if gpu.forward_compatible is False), "")
    bases = [f"R{base}" for base in sorted(rules.compat_bases(matrix, minor))]
    more = f"--forward is for data-centre GPUs, not for {of}" if of else f"--forward needs {' or '.join(bases)}"
    more = f"; {more}" if context.space.request.forward and (of or bases) else ""
    return f"driver {floor} or newer (minor-version compatibility of CUDA {rules.major(minor)}{more})"


def _too_old(context: Context, drivers: list[DriverValue]) -> str:
    if not context.narrow("driver"):
        return ""
    return f"; the driver here is {span(value.version for value in drivers)}"


def _one_major(context: Context, member: Pair) -> str:
    parts = []
    for component in member.scope:
        values = context.values(component)
        if component == "cupy":
            majors = {rules.major(minor) for value in values for minor in cast("Any", value).release.cuda}
        else:
            majors = {context.space.cuda_major(value) for value in values}
        shown = label(component, values[0]) if len({value.version for value in values}) == 1 else title(component)
        if len(majors) <= 2:
            parts.append(f"{shown} is for CUDA {' or '.join(map(str, sorted(majors)))}")
    if len(parts) < 2:
        return f"one environment can hold only one CUDA major, shared by {listed(map(title, member.scope))}"
    return f"one environment holds one CUDA major, and {parts[0]} while {parts[1]}"


def _cudnn_cuda(context: Context, _: Pair) -> str:
    values = cast("Any", context.values("cudnn"))
    versions = {value.version for value in values}
    supported = span({minor for value in values for minor in value.row.cuda})
    if len(versions) > 3:
        return f"each cuDNN is supported with some CUDA versions, and none of those here with CUDA {_cudas(context)}"
    if context.candidate:
        return f"it is supported with CUDA {supported}; the stack has {_cudas(context)}"
    return f"cuDNN {span(versions)} is supported with CUDA {supported}"


def _cudas(context: Context) -> str:
    return span({value.version for value in context.values("cuda")})


def _cudnn_driver(context: Context, _: Pair) -> str:
    floors = {value.row.min_driver for value in cast("Any", context.values("cudnn")) if value.row.min_driver}
    return f"cuDNN needs driver {min(floors, key=nv)} or newer"


def _torch_cudnn(context: Context, _: Pair) -> str:
    parts = []
    for value in cast("Any", context.values("torch"))[-3:]:
        name = label("torch", value)
        major = rules.major(value.build.cuda)
        brings = f"includes cuDNN {value.build.cudnn}" if value.build.cudnn else f"includes a cuDNN for CUDA {major}"
        parts.append(f"{name} {brings}")
    return "; ".join(parts) + "; a second cuDNN in the same environment shadows it"


def _framework_cudnn(context: Context, member: Pair) -> str:
    name = member.scope[0]
    value = cast("Any", context.values(name))[-1]
    pin = context.space.cudnn_pin(value) or f"for CUDA {context.space.cuda_major(value)}"
    return f"{label(name, value)} requires cuDNN {pin}"


def _pins(context: Context, member: Pair) -> str:
    names = [label(name, context.values(name)[-1]) for name in member.scope]
    return f"{names[0]} and {names[1]} pin different versions of the same CUDA wheels"


def _python_tag(context: Context, member: Pair) -> str:
    tags, name = python_tags(context.space.arch), member.scope[0]
    values, pythons = context.values(name), [value.version for value in context.values("python")]
    here = f"; Python here is {pythons[0]}" if len(pythons) == 1 else ""
    versions = {value.version for value in values}
    if len(versions) > 1 and here:
        fitting = {value.version for value in values if pythons[0] in tags(value)}
        if fitting:
            return f"{title(name)} has wheels for Python {pythons[0]} in {span(fitting)}"
    offered = {tag.rstrip("t") for value in values for tag in tags(value)}
    if not offered:
        return f"{title(name)} has no CUDA wheels for {context.space.arch} in {span(versions)}"
    if len(versions) > 3:
        return f"each {title(name)} release has wheels for some Python versions only{here}"
    shown = label(name, values[0]) if len(values) == 1 else f"{title(name)} {span(versions)}"
    return f"{shown} has wheels for Python {span(offered)}{here}"


def _distribution_python(_: Context, member: Unary) -> str:
    system, known = member.subject
    whose = system.name if system is not None else "the host"
    others = f" and packages of {', '.join(known[1:])}" if len(known) > 1 else ""
    return f"{whose} has Python {known[0]}{others}"


def _glibc(context: Context, member: Unary) -> str:
    name, system = member.scope[0], member.subject
    needed = span({cast("Any", value).release.glibc for value in context.values(name)})
    if context.candidate:
        return f"it needs glibc {needed}; {system.name} has {system.glibc}"
    return f"{title(name)} wheels need glibc {needed}; {system.name} has {system.glibc}"


def _distribution_cuda(_: Context, member: Unary) -> str:
    system = member.subject
    ends = (f"{word} {end}" for word, end in (("from", system.cuda_min), ("up to", system.cuda_max)) if end)
    return f"NVIDIA's repository for {system.name} has CUDA " + " ".join(ends)


def _cpu(_: Context, member: Unary) -> str:
    system, arch = member.subject
    return f"{system.name} is supported on {', '.join(system.arches)}, not on {arch}"


def _wheel_cpu(context: Context, member: Unary) -> str:
    name = member.scope[0]
    if context.candidate:
        return f"it has no CUDA wheel for {member.subject}"
    fitting = [value.version for value in _allowed(context, member)]
    where = f"in {span(fitting)} only" if fitting else "in no release"
    return f"{title(name)} has CUDA wheels for {member.subject} {where}"


def _jax_floor(context: Context, _: Pair) -> str:
    floors = sorted({value.release.min_driver for value in cast("Any", context.values("jax"))}, key=nv)
    return f"JAX needs driver {floors[0]} or newer"


def _driver_of_another_system(_: Context, member: Unary) -> str:
    if member.subject == "wsl":
        return "this is WSL, which uses the driver of Windows: do not install one in it"
    return "this is a container, which uses the driver of its host: do not install one in it"


_WRITERS: dict[str, Callable[[Context, Any], str]] = {
    "requested": _requested,
    "installed-driver-stays": _stays,
    "repository-offers": _offers,
    "driver-elsewhere": _driver_of_another_system,
    "gpu-driver-window": _window,
    "module-flavour": lambda _, member: only_module(member.subject),
    "toolkit-targets-gpu": _gpu_span,
    "cudnn-support-row": _gpu_span,
    "cupy-gpu-window": _gpu_span,
    "nccl-gpu-code": _gpu_span,
    "torch-needs-code-for-gpu": _gpu_span,
    "tensorflow-needs-code-for-gpu": _gpu_span,
    "jax-needs-code-for-gpu": _gpu_span,
    "jax-gpu-floor": _jax_gpu_floor,
    "driver-runs-cuda": _driver_runs,
    "one-cuda-major": _one_major,
    "cudnn-takes-cuda": _cudnn_cuda,
    "cudnn-driver-floor": _cudnn_driver,
    "torch-pins-cudnn": _torch_cudnn,
    "tensorflow-takes-cudnn": _framework_cudnn,
    "jax-takes-cudnn": _framework_cudnn,
    "framework-pins-agree": _pins,
    "python-tag": _python_tag,
    "distribution-python": _distribution_python,
    "glibc-tag": _glibc,
    "distribution-has-cuda": _distribution_cuda,
    "distribution-cpu": _cpu,
    "wheel-for-cpu": _wheel_cpu,
    "jax-driver-floor": _jax_floor,
}
