"""What a package above the frameworks could be: one value per release."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.packages import PackageFile, PackageRelease

__all__ = ["PackageValue", "package_values"]


class PackageValue(Struct, frozen=True):
    """A release of a package above the frameworks."""

    version: str
    file: "PackageFile"
    release: "PackageRelease"
    confidence: str


@lru_cache(maxsize=64)
def package_values(matrix: Matrix, name: str) -> list[PackageValue]:
    """Return every release of a package."""
    file = matrix.package(name)
    return [PackageValue(item.version, file, item, item.confidence) for item in file.releases]
