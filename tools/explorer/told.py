"""The page's texts about values, from the resolver: reasons, rules with their sources, Pythons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.matrix.gpus import find_gpu
from gpusetup.model.request import COMPONENTS, SAID_AS, Request, Requirement
from gpusetup.resolve.answer import python_range, stack_of, warnings_about
from gpusetup.resolve.constraints import build, python_tags
from gpusetup.resolve.naming import OF_WHEELS, only_module, rule_source, rule_text, title
from gpusetup.resolve.reasons import RELATION, reasons
from gpusetup.resolve.search import Unary
from gpusetup.resolve.space import FRAMEWORKS, Space
from gpusetup.versions import nv
from tools.explorer.compiled import WISHES, drivers_of
from tools.explorer.install import about_install
from tools.explorer.warnings import about_warnings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.resolve.domains import Value
    from tools.explorer.compiled import Compiled, Gpus

_RUNTIMES = ("cuda", *FRAMEWORKS)
_PYTHON_PACKAGES = (*FRAMEWORKS, "cupy")


def about_rules(matrix: Matrix, names: Iterable[str]) -> dict[str, list[str]]:
    """Return each rule's text and source document."""
    plain = {"requested": "it was asked for", "installed-driver-stays": "the driver stays"}
    return {
        f"{name} {of}".rstrip(): [
            rule_text(matrix, name) or plain.get(name, name.replace("-", " ")),
            rule_source(matrix, name, filter(None, [of])),
        ]
        for name in sorted(set(names))
        for of in ("", *(_PYTHON_PACKAGES if name in OF_WHEELS else ()))
    }


def about_names(matrix: Matrix, gpus: Gpus) -> dict[str, Any]:
    """Return the names of requests and GPUs, and what only the command line can answer."""
    labels = {name: find_gpu(matrix, name).label for name in gpus.names}
    return {
        "inferred": dict(_inferred(matrix, gpus)),
        "labels": {name: label for name, label in labels.items() if label != name},
        "titles": {name: title(name) for name in (*WISHES, "driver", "python")}
        | {"driver": "Driver", "python": "Python"},
        "aliases": {name: known for name, known in SAID_AS.items() if known in WISHES},
        "elsewhere": sorted(
            {*COMPONENTS, *(name for name, known in SAID_AS.items() if known not in WISHES)} - {*WISHES, "driver"}
        ),
    }


def _inferred(matrix: Matrix, gpus: Gpus) -> Iterator[tuple[str, str]]:
    """Yield the GPUs whose compute capability is not published, with the warning."""
    for name in gpus.names:
        if find_gpu(matrix, name).inferred:
            space = build(matrix, Request(requirements=(Requirement(component="cuda"),), gpus=(name,), gpu_count=1))
            driver = max(drivers_of(space), key=lambda item: item.number)
            yield name, next(text for text in warnings_about(space, {"driver": driver}) if " inferred " in text)


def about_kinds(compiled: Compiled, gpus: Gpus) -> list[dict[str, str]]:
    """Return for each kind of GPU its description, and the texts about drivers and kernel modules."""
    told = []
    for name, cpu in gpus.kinds:
        (gpu,) = compiled.space(gpu=name).gpus
        last = f"R{gpu.last_branch} is the last driver branch for this GPU" if gpu.last_branch is not None else ""
        module = only_module(gpu).replace(f"{gpu.label} ({gpu.arch})", "this GPU")
        told.append({"arch": gpu.arch, "cc": gpu.cc, "cpu": cpu or "", "last": last, "module": module})
    return told


def about_problem(compiled: Compiled, gpus: Gpus) -> dict[str, Any]:
    """Return the texts about the values on one CPU."""
    space = compiled.base
    return {
        "shown": {name: _shown(compiled, name) for name in WISHES},
        "words": {name: [_typed(space, name, value) for value in space.values[name]] for name in WISHES},
        "python": _pythons(compiled),
        "driver": _drivers(compiled),
        "relations": {name: _relations(compiled, name) for name in _RUNTIMES},
        "minors": {name: [space.minor(value) for value in space.values[name]] for name in (*_RUNTIMES, "nccl")},
        "install": about_install(compiled, gpus),
        "warnings": about_warnings(compiled, gpus),
    }


def _never(compiled: Compiled, name: str) -> list[Value]:
    """Return the values that no answer contains: withdrawn, or without a wheel for this CPU."""
    allowed = -1
    for item in compiled.base.constraints:
        if isinstance(item, Unary) and item.scope == (name,):
            allowed &= item.allowed
    return [value for index, value in enumerate(compiled.base.values[name]) if not allowed >> index & 1]


def _shown(compiled: Compiled, name: str) -> list[str]:
    """Return the text next to each version; cuDNN's depends on the other components."""
    values = compiled.base.values[name]
    never = [*values] if name in ("cuda", "cudnn") else _never(compiled, name)
    return ["" if value in never else _particulars(compiled, name, value) for value in values]


def _particulars(compiled: Compiled, name: str, value: Any) -> str:
    values = compiled.base.values
    chosen = {"driver": compiled.newest_driver, name: value} | ({"cuda": values["cuda"][-1]} if name == "cupy" else {})
    part: Any = stack_of(compiled.base, chosen).part(name)
    if name == "torch":
        libraries = [
            f"{title(library)} {getattr(part, library)}"
            for library in ("cuda", "cudnn", "nccl")
            if getattr(part, library)
        ]
        return ", ".join([f"{part.variant} ({'PyPI' if part.on_pypi else part.index_url})", *libraries])
    if name == "tensorflow":
        return f"CUDA {part.cuda}, cuDNN {part.cudnn}"
    if name == "jax":
        return f"jax[{part.extra}]" if part.extra else ""
    return str(part.package) if name == "cupy" else f"for CUDA {part.cuda}"


def _typed(space: Space, component: str, value: Any) -> str:
    (variant,) = space.builds(value) if component in ("torch", "jax") else ("",)
    return str(Requirement(component=component, specifier=f"=={value.version}", variant=variant))


def _pythons(compiled: Compiled) -> dict[str, Any]:
    """Return the Pythons of each value's wheels as a bit mask, and the text for each combination."""
    tags = python_tags(compiled.arch)
    offered = {
        name: [{tag for tag in tags(value) if not tag.endswith("t")} for value in values]
        for name, values in compiled.base.values.items()
        if name in _PYTHON_PACKAGES
    }
    versions = sorted({tag for values in offered.values() for some in values for tag in some}, key=nv)
    masks = {
        name: [sum(1 << versions.index(tag) for tag in some) for some in values] for name, values in offered.items()
    }
    shared: set[int] = set()
    for own in masks.values():
        shared |= {mask & other for mask in own for other in (*shared, -1)}
    words = {
        mask: python_range([text for place, text in enumerate(versions) if mask >> place & 1])
        for mask in shared
        if mask
    }
    return {"versions": versions, "tags": masks, "words": words}


def _drivers(compiled: Compiled) -> dict[str, str]:
    """Return the texts about each branch."""
    told: dict[str, str] = {}
    space = compiled.space(wishes={"cuda": ""})
    for value in drivers_of(space):
        branch = str(value.branch.branch)
        if branch not in told:
            found = {item.rule: item.text for item in reasons(space, {"driver": value})}
            told[branch] = found["long-lived-branch"]
    return told


def _relations(compiled: Compiled, name: str) -> dict[str, Any]:
    """Return how each value works with each driver: rows of letters, equal rows once."""
    space = compiled.base
    rows: dict[str, int] = {}
    of_driver = []
    values: Any = space.values[name]
    for driver in drivers_of(space):
        ways = (space.relation(driver, value) for value in values)
        row = "".join(way[0] if way else "-" for way in ways)
        of_driver.append(rows.setdefault(row, len(rows)))
    return {"rows": list(rows), "driver": of_driver, "words": {way[0]: text for way, text in RELATION.items()}}
