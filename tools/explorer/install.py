"""The parts of pip commands that the page assembles: the pins of each value, and the limits of compilers."""

from __future__ import annotations

import shlex
from itertools import product
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpusetup.components.python.requirements import CAPPED_MAJOR, compiler_caps, python_requirements, without_caps
from gpusetup.model.stack import MatrixStamp, Resolution
from gpusetup.plan.install import install_of
from gpusetup.resolve import rules
from gpusetup.resolve.answer import stack_of
from gpusetup.resolve.hardware import limits_of
from gpusetup.resolve.space import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from gpusetup.model.stack import Stack
    from gpusetup.resolve.domains import Value
    from tools.explorer.compiled import Compiled, Gpus


def about_install(compiled: Compiled, gpus: Gpus) -> dict[str, Any]:
    """Return the parts of pip's command: options, pins, packages for CuPy without a framework, and limits."""
    values = compiled.base.values
    lines = {name: [_lines(compiled, **{name: value}) for value in values[name]] for name in (*FRAMEWORKS, "cupy")}
    return {
        "options": [_words(line for line in told if line[0] == "-") for told in lines["torch"]],
        "pins": {name: [_words(_pins(name, told)) for told in each] for name, each in lines.items()},
        "toolkit": _toolkit(compiled),
        "libraries": {
            name: [{major: _library(compiled, name, value, major) for major in _majors(compiled)} for value in each]
            for name, each in values.items()
            if name in ("cudnn", "nccl")
        },
        "limits": _limits(compiled),
        "kept": {name: _kept(compiled, gpus, name) for name in ("tensorflow", "jax")},
        "none": _none(compiled),
    }


def _pins(name: str, lines: tuple[str, ...]) -> Iterable[str]:
    """Return the pins of a value, without the toolkit's wheels, which depend on CuPy."""
    return lines[:1] if name == "cupy" else (line for line in lines if line[0] != "-")


def _words(lines: Iterable[str]) -> str:
    return shlex.join(word for line in lines for word in line.split())


def _stack(compiled: Compiled, **chosen: Value) -> Stack:
    needs_cuda = chosen.keys() & {"cupy", "cudnn", "nccl"} and "cuda" not in chosen
    beside = {"cuda": _newest_of(compiled)[-1]} if needs_cuda else {}
    return stack_of(compiled.base, {"driver": compiled.newest_driver, **beside, **chosen})


def _newest_of(compiled: Compiled) -> list[Value]:
    return list({value.version.partition(".")[0]: value for value in compiled.base.values["cuda"]}.values())


def _majors(compiled: Compiled) -> list[str]:
    return [value.version.partition(".")[0] for value in _newest_of(compiled)]


def _lines(compiled: Compiled, **chosen: Value) -> tuple[str, ...]:
    return without_caps(python_requirements(_stack(compiled, **chosen), compiled.matrix))


def _toolkit(compiled: Compiled) -> dict[str, Any]:
    """Return the toolkit's wheels for each CUDA, for a CuPy with an extra for them and for one without."""
    values: Any = compiled.base.values
    kinds = {value.release.ctk_extra: value for value in values["cupy"]}
    return {
        "extra": [int(value.release.ctk_extra) for value in values["cupy"]],
        "wheels": {
            int(extra): [_words(_lines(compiled, cupy=cupy, cuda=cuda)[1:]) for cuda in values["cuda"]]
            for extra, cupy in kinds.items()
        },
    }


def _library(compiled: Compiled, name: str, value: Value, major: str) -> str:
    cuda = next(item for item in _newest_of(compiled) if item.version.partition(".")[0] == major)
    return _words(_lines(compiled, **{name: value, "cuda": cuda}))


def _kept(compiled: Compiled, gpus: Gpus, name: str) -> list[list[str]]:
    """Return for each kind of GPU the limits that it sets on libraries, for each value of the framework."""
    found, values = [], compiled.base.values[name]
    always = [limits_of(compiled.base, value) for value in values]
    for kind, _cpu in gpus.kinds:
        space = compiled.space(gpu=kind)
        texts = [
            _words(text for text in limits_of(space, value) if text not in own)
            for value, own in zip(values, always, strict=True)
        ]
        found.append(texts if any(texts) else [])
    return found


def _limits(compiled: Compiled) -> dict[str, Any]:
    """Return `package<version` for each kind of driver branch, torch, JAX and toolkit, equal texts once.

    A kind is what the limits depend on: the CUDA of a value and its pins; values of other CUDA majors are one kind.
    """
    space = compiled.base
    kinds: dict[str, dict[Hashable, Value | None]] = {name: {"": None} for name in ("driver", "torch", "jax", "cuda")}
    of_value: dict[str, list[int]] = {}
    for name, known in kinds.items():
        for value in space.values[name]:
            known.setdefault(_kind(compiled, name, value), value)
        of_value[name] = [list(known).index(_kind(compiled, name, value)) for value in space.values[name]]
    texts: dict[str, int] = {}
    cupies: Any = space.values["cupy"]
    extra = next(value for value in cupies if value.release.ctk_extra)
    found = []
    for driver, torch, jax, cuda in product(*(known.values() for known in kinds.values())):
        some = {"torch": torch, "jax": jax, "cuda": cuda, "cupy": extra if cuda is not None else None}
        chosen = {name: value for name, value in some.items() if value is not None}
        told = ""
        if driver is not None and chosen:
            stack = _stack(compiled, **chosen)
            there = replace(stack.driver, branch=str(driver.branch.branch))
            told = _words(compiler_caps(replace(stack, driver=there), compiled.matrix, toolkit=cuda is not None))
        found.append(texts.setdefault(told, len(texts)))
    return {"kinds": of_value, "sizes": [len(known) for known in kinds.values()], "table": found, "texts": list(texts)}


def _kind(compiled: Compiled, name: str, value: Any) -> Hashable:
    if name == "driver":
        minor = value.branch.cuda or "0"
        return minor if rules.major(minor) == CAPPED_MAJOR else ""
    if compiled.base.cuda_major(value) != CAPPED_MAJOR:
        return ""
    return (compiled.base.minor(value), tuple(value.release.pins.items()) if name in ("torch", "jax") else ())


def _none(compiled: Compiled) -> str:
    """Return the text for a stack without Python packages."""
    matrix, space = compiled.matrix, compiled.base
    stack = _stack(compiled, cuda=space.values["cuda"][-1])
    stamp = MatrixStamp(date=matrix.date, digest=matrix.digest)
    return install_of(Resolution(matrix=stamp, request=space.request, stack=stack, reasons=()), matrix).notes["pip"]
