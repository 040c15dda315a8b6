"""Reads the rows that others published, as copied into tests/fixtures/crosscheck."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.matrix.load import Matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.constraints import build
from gpusetup.resolve.reasons import conflict
from gpusetup.resolve.search import minimal_conflict

FIXTURES = Path(__file__).parents[1] / "fixtures" / "crosscheck"


def rows(name: str) -> list[dict[str, Any]]:
    return json.loads((FIXTURES / f"{name}.json").read_text())["rows"]


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
    return [] if problem.satisfiable() else conflict(space, minimal_conflict(problem))
