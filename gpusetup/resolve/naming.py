"""Names of components, values and versions in sentences, and the source document of a rule or record."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from gpusetup.model.request import PACKAGES
from gpusetup.resolve.domains import TorchValue, Value, branch_of, parsed
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.version import Version

    from gpusetup.matrix.gpus import GpuKind
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.record import MatrixFile, Record, Rule
    from gpusetup.model.request import Request, Requirement
    from gpusetup.resolve.space import Space

_NAMES = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL", "cupy": "CuPy", "tensorflow": "TensorFlow", "jax": "JAX"}


def title(component: str) -> str:
    """Return a component's usual spelling."""
    return _NAMES.get(component, component)


def label(component: str, value: Value) -> str:
    """Return the name and version of a value."""
    if isinstance(value, TorchValue):
        return f"torch {value.version}+{value.build.variant}"
    return f"{title(component)} {value.version}"


def only_module(gpu: GpuKind) -> str:
    """Return a sentence if a GPU works with only one flavour of kernel modules, else an empty string."""
    flavour = {"required": "open", "unsupported": "proprietary"}.get(gpu.module, "")
    return f"{gpu.label} ({gpu.arch}) works only with the {flavour} kernel modules" if flavour else ""


def span(versions: Iterable[str]) -> str:
    """Return up to three versions as a list, more as a range."""
    ordered = sorted(set(versions), key=parsed)
    if len(ordered) <= 3:
        return ", ".join(ordered)
    return f"{ordered[0]} to {ordered[-1]}"


def listed(texts: Iterable[str]) -> str:
    """Join words for a sentence: a, b and c."""
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


def published_versions(space: Space, component: str) -> list[str]:
    """Return every known version of a component for Linux, oldest first."""
    if component == "driver":
        return sorted((item.version for item in space.matrix.driver.versions if item.platform == "linux"), key=nv)
    return sorted({value.version for value in space.values[component]}, key=parsed)


def last_before(published: list[str], component: str, wanted: list[Version]) -> str:
    """Return the newest known release if all wanted ones are newer, for a driver also within its branch; else empty."""
    branch = [text for text in published if parsed(text).major == wanted[0].major] if component == "driver" else []
    same = all(bound.major == wanted[0].major for bound in wanted)
    for known in (published, branch if same else []):
        if known and all(bound > parsed(known[-1]) for bound in wanted):
            return known[-1]
    return ""


def nearest(published: list[str], wanted: str) -> list[str]:
    """Return up to three versions around the wanted one: two older and one equal or newer, or three older."""
    below = [text for text in published if parsed(text) < parsed(wanted)]
    above = [text for text in published if parsed(text) >= parsed(wanted)]
    return [*below[-2:], *above[:1]] if above else below[-3:]


def records(matrix: Matrix, component: str) -> tuple[Any, ...]:
    """Return the records of a component's releases, and those of torch's builds."""
    if component == "python":
        return ()
    if component in PACKAGES:
        return matrix.package(component).releases
    file: Any = getattr(matrix, component)
    found: tuple[Any, ...] = file.versions if component == "driver" else file.releases
    return (*found, *file.builds) if component == "torch" else found


def alone(wish: Requirement, matrix: Matrix) -> str:
    """Return a note if ==2.5 or the like is one release, as for pip, of a series with more; else an empty string."""
    number = wish.specifier.removeprefix("==")
    if not re.fullmatch(r"\d+(\.\d+)?", number):
        return ""
    wanted = parsed(number).release
    series = {parsed(one.version) for one in records(matrix, wish.component)}
    series = {version for version in series if version.release[: len(wanted)] == wanted}
    if parsed(number) not in series or len(series) == 1:
        return ""
    zeros = ".0" * (2 - number.count("."))
    return f"{wish} is {number}{zeros} alone, as for pip; {wish.component}={number} is any {number}"


def unknown_driver(version: str, matrix: Matrix) -> str:
    """Return a warning about a driver of Windows or one that the matrix does not know, else an empty string."""
    branch = branch_of(matrix, version)
    if branch is not None and of_windows(version, matrix):
        numbers = {windows: f" (on Linux: {linux})" for linux, windows in matrix.driver.windows_numbers.items()}
        return (
            f"{version} is a number of Windows, as WSL shows it{numbers.get(version, '')}: judged as R{branch.branch}"
        )
    if branch is None or any(version == item.version for item in matrix.driver.versions):
        return ""
    own = nv(version).major
    nearest = "" if own == branch.branch else f", and R{own} neither: judged as R{branch.branch}"
    return f"driver {version} is not in the matrix{nearest}; its branch decides"


_BEFORE_WSL = 450


def of_windows(version: str, matrix: Matrix) -> bool:
    """Return whether a driver's number is one of Windows: listed as such, or between two of Linux's branches.

    The matrix lacks R415, R430 and R435 of Linux, which are older than CUDA in WSL.
    """
    listed = {item.version for item in matrix.driver.versions if item.platform == "windows"}
    branches, own = {item.branch for item in matrix.driver.branches}, nv(version).major
    known = listed.union(matrix.driver.windows_numbers.values())
    return version in known or (own not in branches and _BEFORE_WSL < own < max(branches))


def typed(request: Request) -> str:
    """Return a request as command-line words; a bare `driver` is left out if another component implies it."""
    import shlex

    implied = any(item.component not in ("driver", "python") for item in request.requirements)
    words = [text for item in request.requirements if (text := str(item)) != "driver" or not implied]
    several = f"{request.gpu_count}x " if len(request.gpus) == 1 < request.gpu_count else ""
    named = [word for name in request.gpus for word in ("--gpu", several + name)]
    words += ["--on", request.machine_type] if request.gpus and request.machine_type else named
    for option, value in (("--os", request.os), ("--arch", request.arch), ("--driver", request.driver)):
        words += [option, value] if value else []
    for name in ("native", "forward", "allow_builds", "allow_vulnerable"):
        words += [f"--{name.replace('_', '-')}"] if getattr(request, name) else []
    return shlex.join(words)


_FILE_OF_COMPONENT = {"python": "os", "gpu": "gpus"}
OF_WHEELS = ("python-tag", "glibc-tag", "wheel-for-cpu", "framework-pins-agree")
_DOCUMENTED = ("package-driver-floor", "package-gpu-floor")
_FILES_WITH_RULES = ("driver", "cuda", "torch", "cudnn", "nccl", "cupy", "tensorflow", "jax", "gpus", "os")


def _cited(file: MatrixFile, keys: Iterable[str]) -> str:
    """Return the address of the first of these sources, or its publisher and title; empty if the file has none."""
    source = next((file.sources[key] for key in keys if key in file.sources), None)
    if source is None:
        return ""
    return source.url if source.url.startswith("https://") else f"{source.publisher}: {source.title}".lstrip(": ")


def _file(matrix: Matrix, component: str) -> MatrixFile:
    if component in PACKAGES:
        return matrix.package(component)
    return cast("MatrixFile", getattr(matrix, _FILE_OF_COMPONENT.get(component, component)))


def cite(matrix: Matrix, component: str, record: Record) -> str:
    """Return the first source of a record."""
    return _cited(_file(matrix, component), record.sources)


@lru_cache(maxsize=256)
def _rule(matrix: Matrix, rule_id: str) -> tuple[Rule, MatrixFile] | None:
    for name in (*_FILES_WITH_RULES, "forward_compat", "vgpu"):
        file: MatrixFile = getattr(matrix, name)
        for rule in file.rules:
            if rule.id == rule_id:
                return rule, file
    return None


def rule_source(matrix: Matrix, rule_id: str, scope: Iterable[str] = ()) -> str:
    """Return the first source of a rule (of one about packages or wheels, their own); empty if it has none."""
    for name in scope if rule_id in OF_WHEELS or rule_id.startswith("package-") else ():
        keys = ("documented", "index")[rule_id not in _DOCUMENTED :] if name in PACKAGES else (f"pypi_{name}",)
        if own := _cited(_file(matrix, name), keys):
            return own
    found = _rule(matrix, rule_id)
    return _cited(found[1], found[0].sources) if found is not None else ""


def rule_text(matrix: Matrix, rule_id: str) -> str:
    """Return the general text of a rule."""
    found = _rule(matrix, rule_id)
    return found[0].text if found is not None else ""
