"""What `gpusetup --version --verbose` prints: all that decides what this gpusetup answers and does."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from gpusetup import __version__
from gpusetup.content import content_path
from gpusetup.errors import GpuSetupError
from gpusetup.matrix.load import matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["told"]

_LIBRARIES = ("ansible-core", "jinja2", "msgspec", "packaging", "requests", "rich")


def told() -> Iterator[str]:
    """Yield a line for each."""
    yield f"gpusetup {__version__}"
    known = matrix()
    yield f"matrix {known.date}, {known.digest}"
    try:
        yield f"collection {content_path()}"
    except GpuSetupError as error:
        yield f"collection: {error}"
    yield f"Python {platform.python_version()}, {sys.executable}"
    yield from (_library(name) for name in _LIBRARIES)


def _library(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} is not installed"
