"""The output of `gpusetup --version --verbose`."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from gpusetup import __version__
from gpusetup.content import content_path, installation
from gpusetup.errors import GpuSetupError
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.load import matrix as load_matrix
from gpusetup.model.documents import About, InstallKind, MatrixInForce, Overlay

_LIBRARIES = ("ansible-core", "jinja2", "msgspec", "packaging", "requests", "rich", "uvicorn")


def about() -> About:
    """Return the details of this installation and of what it uses."""
    known = load_matrix()
    try:
        collection = str(content_path())
    except GpuSetupError as error:
        collection = str(error)
    return About(
        version=__version__,
        install=cast("InstallKind", installation()),
        place=str(Path(__file__).resolve().parents[1]),
        matrix=MatrixInForce(date=known.date, digest=known.digest, place=str(known.overlay or "")),
        overlays=tuple(_overlays(known)),
        collection=collection,
        python=platform.python_version(),
        interpreter=sys.executable,
        platform=platform.platform(),
        libraries={name: _library(name) for name in _LIBRARIES}
        | {"gpusetup-fleet": __version__ if find_spec("gpusetup_fleet") else None},
    )


def about_lines(found: About) -> Iterator[str]:
    """Yield the details as lines of text."""
    yield f"gpusetup {found.version}, {found.install}: {found.place}"
    origin = f": {found.matrix.place}" if found.matrix.place else ", as it came along"
    yield f"matrix {found.matrix.date}, {found.matrix.digest[:16]}{origin}"
    for overlay in found.overlays:
        files = f": {', '.join(overlay.files)}" if overlay.files else ""
        yield f"{overlay.setting}={overlay.place}{files}"
    yield f"collection {found.collection}"
    yield f"Python {found.python}: {found.interpreter}"
    yield f"platform {found.platform}"
    for name, number in found.libraries.items():
        yield f"{name} {number}" if number else f"{name} is not installed"


def _overlays(known: Matrix) -> Iterator[Overlay]:
    if place := os.environ.get("GPUSETUP_MATRIX"):
        files = sorted(path.name for path in Path(place).glob("*.json"))
        yield Overlay(setting="GPUSETUP_MATRIX", place=str(known.overlay), files=tuple(files))
    for setting in ("GPUSETUP_CONTENT", "GPUSETUP_STATE", "GPUSETUP_CACHE"):
        if place := os.environ.get(setting):
            yield Overlay(setting=setting, place=place)


def _library(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
