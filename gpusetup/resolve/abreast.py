"""Packages that are asked for together come abreast: neither goes back far for the other's sake.

Without this, two packages whose releases pin each other's requirements apart would "fit" in releases of long ago, and
nobody would be told.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from gpusetup.model.request import PACKAGES
from gpusetup.resolve.packages import asked_packages, earlier
from gpusetup.resolve.preferences import best

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.request import Request
    from gpusetup.resolve.domains import PackageValue
    from gpusetup.resolve.space import Space

__all__ = ["add_abreast"]


def add_abreast(space: Space, build: Callable[[Matrix, Request], Space]) -> None:
    """Leave of each package asked for in any version what is at most three months behind the one it has alone."""
    request = space.request
    names = asked_packages(request)
    for name in names if len(names) > 1 else ():
        if space.named[name].specifier:
            continue
        alone = tuple(item for item in request.requirements if item.component not in PACKAGES or item.component == name)
        solution = best(build(space.matrix, msgspec.structs.replace(request, requirements=alone)))
        if solution is None:
            continue  # the conflict is told without this rule
        chosen = cast("PackageValue", solution[name])
        if not chosen.release.date:
            continue
        oldest = earlier(chosen.release.date)
        space.unary("package-abreast", name, partial(_since, oldest), subject=chosen)


def _since(oldest: str, value: PackageValue) -> bool:
    return value.release.date >= oldest
