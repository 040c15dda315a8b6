"""What the page says about values, in the resolver's own words: reasons, rules with their sources, install lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.stack import MatrixStamp, Resolution
from gpusetup.plan.install import install_of, pip_lines
from gpusetup.resolve.answer import stack_of
from gpusetup.resolve.naming import only_module, title
from gpusetup.resolve.reasons import RELATION, reasons
from gpusetup.resolve.search import Unary
from gpusetup.resolve.sources import rule_source, rule_text
from gpusetup.resolve.space import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.matrix.load import Matrix
    from gpusetup.resolve.domains import Value
    from tools.explorer.compiled import Compiled, Gpus

__all__ = ["about_kinds", "about_problem", "about_rules"]

_PIP = "-m pip install "
_RUNTIMES = ("cuda", *FRAMEWORKS)


def about_rules(matrix: Matrix, names: Iterable[str]) -> dict[str, list[str]]:
    """Return what each rule says and the document behind it."""
    plain = {"requested": "it was asked for", "installed-driver-stays": "the driver stays"}
    return {
        name: [rule_text(matrix, name) or plain.get(name, name.replace("-", " ")), rule_source(matrix, name)]
        for name in sorted(set(names))
    }


def about_kinds(compiled: Compiled, gpus: Gpus) -> list[dict[str, str]]:
    """Return for each kind of GPU what it is, and what it says of drivers and their modules."""
    told = []
    for name, cpu in gpus.kinds:
        (gpu,) = compiled.space(gpu=name).gpus
        last = f"R{gpu.last_branch} is the last driver branch for this GPU" if gpu.last_branch is not None else ""
        module = only_module(gpu).replace(f"{gpu.label} ({gpu.arch})", "this GPU")
        told.append({"arch": gpu.arch, "cc": gpu.cc, "cpu": cpu or "", "last": last, "module": module})
    return told


def about_problem(compiled: Compiled) -> dict[str, Any]:
    """Return what is said of the values of one framework on one CPU."""
    space, framework = compiled.base, compiled.framework
    shown, words, ranges = [], [], []
    never = _never(compiled)
    for value in space.values[framework]:
        if value in never:
            shown, words, ranges = [*shown, ""], [*words, ""], [*ranges, ""]
            continue
        chosen = _with(compiled, value)
        stack = stack_of(space, chosen)
        part = stack.part(framework)
        shown.append(_particulars(framework, part))
        words.append(_typed(framework, value))
        ranges.append(stack.python.requires if stack.python is not None else "")
    names = [name for name in _RUNTIMES if name in space.values]
    told = {
        "title": title(framework),
        "shown": shown,
        "words": words,
        "python": ranges,
        "driver": _drivers(compiled),
        "relations": {name: _relations(compiled, name) for name in names},
        "minors": {name: [space.minor(value) for value in space.values[name]] for name in names},
        "pip": _pip(compiled),
    }
    if framework != "cuda" and "cuda" in space.values:
        told["cudas"] = [_typed("cuda", value) for value in space.values["cuda"]]
    return told


def _never(compiled: Compiled) -> list[Value]:
    """Return the values that no answer has: without a wheel for this CPU, or taken back."""
    values, allowed = compiled.base.values[compiled.framework], -1
    for item in compiled.base.constraints:
        if isinstance(item, Unary) and item.scope == (compiled.framework,):
            allowed &= item.allowed
    return [value for index, value in enumerate(values) if not allowed >> index & 1]


def _with(compiled: Compiled, value: Value) -> dict[str, Value]:
    """Return some stack with this value: what is said of a value does not depend on the rest."""
    values = compiled.base.values
    chosen = {name: values[name][-1] for name in values}
    for name in values:
        if name == "cuda" and compiled.framework == "cupy":
            chosen["cuda"] = next(item for item in values["cuda"] if item.release.minor in value.release.cuda)  # type: ignore[union-attr]
    chosen["driver"] = compiled.newest_driver
    chosen[compiled.framework] = value
    return chosen


def _particulars(framework: str, part: Any) -> str:
    if framework == "torch":
        libraries = [f"{title(name)} {getattr(part, name)}" for name in ("cudnn", "nccl") if getattr(part, name)]
        return ", ".join([f"{part.variant} ({'PyPI' if part.on_pypi else part.index_url})", *libraries])
    if framework == "tensorflow":
        return f"CUDA {part.cuda}, cuDNN {part.cudnn}"
    if framework == "jax":
        return f"jax[{part.extra}]" if part.extra else ""
    return part.package if framework == "cupy" else ""


def _typed(component: str, value: Any) -> str:
    variant = f"+{value.build.variant}" if component == "torch" else ""
    return f"{component}=={value.version}{variant}"


def _drivers(compiled: Compiled) -> dict[str, str]:
    """Return what is said of each branch, and of the modules that a driver comes with by default."""
    told: dict[str, str] = {}
    space = compiled.base
    for value in space.values["driver"]:
        branch = str(value.branch.branch)  # type: ignore[union-attr]
        if branch not in told:
            chosen = {name: values[-1] for name, values in space.values.items()} | {"driver": value}
            found = {item.rule: item.text for item in reasons(compiled.space(every_driver=False), chosen)}
            told[branch] = found["long-lived-branch"]
    return told


def _relations(compiled: Compiled, name: str) -> dict[str, Any]:
    """Return how each value stands on each driver: rows of letters, equal rows once."""
    space = compiled.base
    rows: dict[str, int] = {}
    of_driver = []
    for driver in space.values["driver"]:
        ways = (space.relation(driver, value) for value in space.values[name])  # type: ignore[arg-type]
        row = "".join(way[0] if way else "-" for way in ways)
        of_driver.append(rows.setdefault(row, len(rows)))
    return {"rows": list(rows), "driver": of_driver, "words": {way[0]: text for way, text in RELATION.items()}}


def _pip(compiled: Compiled) -> dict[str, Any]:
    """Return what pip is told: for each value and CUDA, and each driver branch that counts."""
    space, values = compiled.base, compiled.base.values[compiled.framework]
    if compiled.framework == "cuda":
        return {"note": _note(compiled, values[-1])}
    texts: dict[str, int] = {"": 0}
    never, found = _never(compiled), []
    for value in values:
        cudas: list[Value | None] = [None]
        if compiled.framework == "cupy":
            majors = {minor.partition(".")[0] for minor in value.release.cuda}  # type: ignore[union-attr]
            cudas = [item if item.version.partition(".")[0] in majors else None for item in space.values["cuda"]]
        told = [] if value in never else [_by_branch(compiled, value, cuda, texts) for cuda in cudas]
        found.append(told)
    return {"texts": list(texts), "lines": found}


def _by_branch(compiled: Compiled, value: Value, cuda: Value | None, texts: dict[str, int]) -> dict[str, int]:
    """Return the place of a line's text for each branch; one that is not named has that of ``*``."""
    if compiled.framework == "cupy" and cuda is None:
        return {}
    chosen = _with(compiled, value) | ({"cuda": cuda} if cuda is not None else {})
    told = {}
    for branch, driver in compiled.counting.items():
        runtime = chosen[compiled.framework] if cuda is None else cuda
        if compiled.base.relation(driver, runtime) is not None:  # type: ignore[arg-type]
            words = _words(compiled, chosen | {"driver": driver})
            told[branch] = texts.setdefault(words, len(texts))
    usual = told.get("*")
    return {branch: text for branch, text in told.items() if branch == "*" or text != usual}


def _words(compiled: Compiled, chosen: dict[str, Value]) -> str:
    lines = pip_lines(stack_of(compiled.base, chosen), compiled.matrix)
    return next((line.partition(_PIP)[2] for line in lines if _PIP in line), "")


def _note(compiled: Compiled, value: Value) -> str:
    space, matrix = compiled.base, compiled.matrix
    stamp = MatrixStamp(date=matrix.date, digest=matrix.digest)
    stack = stack_of(space, _with(compiled, value))
    found = install_of(Resolution(matrix=stamp, request=space.request, stack=stack, reasons=()), matrix)
    return found.notes.get("pip", "")
