"""The sentences that explain conflicts: each rule's about a GPU or a system, and the parts about single values.

tools/explorer/web/reasons.js assembles them as gpusetup/resolve/sentences.py does; python -m tests.site.proof compares
the two for random refusals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.request import Requirement
from gpusetup.resolve.domains import branch_of
from gpusetup.resolve.reasons import conflict
from gpusetup.resolve.search import Unary
from gpusetup.resolve.space import FRAMEWORKS
from gpusetup.versions import nv
from tools.explorer.compiled import drivers

if TYPE_CHECKING:
    from gpusetup.resolve.space import Space
    from tools.explorer.compiled import Compiled, Gpus


def about_reasons(compiled: Compiled, gpus: Gpus) -> dict[str, Any]:
    """Return the sentences for one CPU; `{}` stands for the name of a GPU or a build."""
    space = compiled.base
    values: Any = space.values
    systems = [item.id for item in compiled.matrix.os.systems if compiled.arch in item.arches]
    return {
        "base": _said(space),
        "gpus": [_of_gpu(compiled, name) for name, _cpu in gpus.kinds],
        "systems": {system: _said(compiled.space(system=system)) for system in systems},
        "stays": {str(nv(version).major): _stays(compiled, version) for version in drivers(compiled.matrix)},
        "floors": _floors(compiled),
        "code": {name: _code(compiled, gpus, name) for name in FRAMEWORKS},
        "glibc": {name: [value.release.glibc for value in values[name]] for name in FRAMEWORKS},
        "cupy": [sorted({nv(minor).major for minor in value.release.cuda}) for value in values["cupy"]],
        "jax": [[value.release.min_driver, value.release.min_cc] for value in values["jax"]],
        "torch": [value.build.cudnn or "" for value in values["torch"]],
        "pins": {name: [space.cudnn_pin(value) for value in values[name]] for name in ("tensorflow", "jax")},
        "cudnn": [[list(value.row.cuda), value.row.min_driver or ""] for value in values["cudnn"]],
    }


def _said(space: Space) -> dict[str, str]:
    """Return the sentences of constraints on one component, and of pairs with a given value."""
    members = [item for item in space.constraints if isinstance(item, Unary) or item.subject is not None]
    return {
        f"{item.rule}:{item.scope[-1]}": conflict(space, [item])[0]["text"] for item in members if item.origin == "rule"
    }


def _of_gpu(compiled: Compiled, name: str) -> dict[str, str]:
    space = compiled.space(gpu=name)
    known = _said(compiled.base)
    (gpu,) = space.gpus
    return {key: text.replace(gpu.label, "{}") for key, text in _said(space).items() if known.get(key) != text}


def _stays(compiled: Compiled, version: str) -> str:
    branch = branch_of(compiled.matrix, version)
    cuda = f", CUDA {branch.cuda}" if branch is not None and branch.cuda else ""
    return f"(R{nv(version).major}{cuda})"


def _one(name: str, index: int) -> Unary:
    """Return the wish for one value of a component."""
    return Unary("requested", name, 1 << index, origin="request", subject=Requirement(component=name))


def _floors(compiled: Compiled) -> dict[str, str]:
    """Return the driver that each CUDA needs, as in the rule's sentence."""
    space, found = compiled.base, {}
    for name in ("cuda", *FRAMEWORKS):
        (rule,) = (item for item in space.constraints if item.rule == "driver-runs-cuda" and item.scope[-1] == name)
        for index, value in enumerate(space.values[name]):
            one = _one(name, index)
            found[space.minor(value)] = conflict(space, [rule, one])[0]["text"].partition(" needs ")[2]
    return found


def _code(compiled: Compiled, gpus: Gpus, name: str) -> list[str]:
    """Return the GPUs that each build has code for."""
    space = compiled.space(gpu=gpus.kinds[0][0])
    rule = next(
        item for item in space.constraints if item.rule == f"{name}-needs-code-for-gpu" and item.scope == (name,)
    )
    (gpu,) = space.gpus
    told = []
    for index in range(len(space.values[name])):
        text = conflict(space, [rule, _one(name, index)])[0]["text"]
        told.append(text.removeprefix(f"{gpu.label} has compute capability {gpu.cc}; "))
    return told
