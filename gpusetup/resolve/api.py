"""The resolver's front door: one stack for a request, or the minimal conflict with ways out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpusetup.errors import NoStackError
from gpusetup.model.request import PACKAGES, Request, Requirement
from gpusetup.model.stack import Resolution
from gpusetup.resolve import explain
from gpusetup.resolve.answer import stack_of
from gpusetup.resolve.causes import minimal_conflict
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import parsed
from gpusetup.resolve.preferences import best
from gpusetup.resolve.reasons import reasons
from gpusetup.resolve.suggest import suggestions
from gpusetup.resolve.warn import warnings_about

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpusetup.matrix.load import Matrix
    from gpusetup.resolve.space import Space

__all__ = ["check_set", "fits", "resolve"]

_READABLE = 4
"""Sentences of a conflict that a person still takes in."""


def resolve(request: Request, matrix: Matrix) -> Resolution:
    """Return the preferred stack with its reasons; raises NoStackError with the minimal conflict."""
    if any(item.beside for item in request.requirements):
        from gpusetup.resolve.beside import with_others

        return with_others(request, matrix, _resolved)
    return _resolved(request, matrix)


def _resolved(request: Request, matrix: Matrix) -> Resolution:
    space = build(matrix, request)
    solution = best(space)
    if solution is None:
        raise _no_stack(space)
    return Resolution(
        matrix=matrix.stamp,
        request=request,
        stack=stack_of(space, solution),
        reasons=reasons(space, solution),
        warnings=warnings_about(space, solution),
    )


def _no_stack(space: Space) -> NoStackError:
    conflict = explain.conflict(space, minimal_conflict(space.problem()))
    if len(conflict) > _READABLE:
        conflict = min((conflict, *_about_newest(space)), key=len)
    ways_out = suggestions(space)
    document = {
        "schema": "gpusetup/stack/1",
        "ok": False,
        "matrix": {"date": space.matrix.date, "digest": space.matrix.digest},
        "conflict": conflict,
        "suggestions": list(ways_out),
    }
    return NoStackError(
        "GS-210",
        "no stack fits: these requirements conflict",
        document=document,
        note="\n  ".join(f"- {item['text']}" for item in conflict),
        hint="; or ".join(ways_out),
    )


def _about_newest(space: Space) -> Iterator[list[dict[str, str]]]:
    """Yield the conflict of the newest release of each package that was asked for in any: shorter than that of all."""
    wishes = space.request.requirements
    for wish in wishes:
        if wish.component not in PACKAGES or wish.specifier:
            continue
        newest = max(space.values[wish.component], key=lambda value: parsed(value.version)).version
        named = msgspec.structs.replace(wish, specifier=f"=={newest}")
        asked = tuple(named if item is wish else item for item in wishes)
        alone = build(space.matrix, msgspec.structs.replace(space.request, requirements=asked))
        told = explain.conflict(alone, minimal_conflict(alone.problem()))
        text = f"the newest {wish.component} is {newest}, and no older one fits either"
        yield [item | {"text": text} if item["text"] == f"{named} was asked for" else item for item in told]


def fits(request: Request, matrix: Matrix) -> bool:
    """Tell whether any stack fits, without choosing one."""
    return build(matrix, request).problem().satisfiable()


def check_set(
    versions: Mapping[str, str], matrix: Matrix, *, gpus: tuple[str, ...] = (), driver: str | None = None
) -> list[dict[str, str]]:
    """Return the conflict among versions that are given exactly; empty: they go together."""
    wanted = []
    for component, text in versions.items():
        version, _, variant = text.partition("+")
        wanted.append(Requirement(component=component, specifier=f"=={version}", variant=variant))
    space = build(matrix, Request(requirements=tuple(wanted), gpus=gpus, driver=driver))
    problem = space.problem()
    return [] if problem.satisfiable() else explain.conflict(space, minimal_conflict(problem))
