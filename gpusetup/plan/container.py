"""A Dockerfile for a stack, on the NVIDIA image that its driver can run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gpusetup.plan.python import LIBRARIES, python_requirements
from gpusetup.versions import cuda_minor, nv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.images import CudaImage
    from gpusetup.model.platforms import OsRelease
    from gpusetup.model.request import Request
    from gpusetup.model.stack import Stack

__all__ = ["dockerfile"]

_PYTHON = {
    "ubuntu": "apt-get update && apt-get install -y --no-install-recommends python3-venv"
    " && rm -rf /var/lib/apt/lists/*",
    "el": "dnf install -y python3 && dnf clean all",
    "amazon": "dnf install -y python3 && dnf clean all",
    "azurelinux": "tdnf install -y python3 && tdnf clean all",
    "suse": "zypper --non-interactive install python3 && zypper clean --all",
}
"""Family → what installs its own Python with venv."""


def dockerfile(stack: Stack, request: Request, matrix: Matrix) -> tuple[tuple[str, ...], str]:
    """Return the lines of a Dockerfile and a note; no lines when the matrix knows no image, and the note says so."""
    if stack.cudas:
        return (), "an NVIDIA image holds one toolkit: ask for one CUDA"
    chosen = max(_candidates(stack, request, matrix), key=lambda item: _rank(stack, request, *item), default=None)
    exact = chosen is not None and stack.cuda is not None and chosen[0].cuda == stack.cuda.version
    if chosen is None or (stack.cuda is not None and stack.cupy is None and not exact):
        wanted = f"CUDA {stack.cuda.version}" if stack.cuda else "this Python and driver"
        return (), f"the matrix has no NVIDIA image with {wanted}"
    image, system = chosen
    wheels = tuple(name for name in LIBRARIES if name != "cuda" or not exact)
    pins = python_requirements(stack, matrix, wheels=wheels)
    tag = f"{image.cuda}-{'devel' if exact else 'base'}-{matrix.images.tags.get(system.id, system.id)}"
    lines = [f"FROM nvidia/cuda:{tag}"]
    if stack.driver is not None:
        lines.insert(0, f"# For a host with driver {stack.driver.version}; start it with: docker run --gpus all IMAGE")
    if pins:
        words = shlex.join(word for pin in pins for word in pin.split())
        lines += [
            f"RUN {_PYTHON[system.family]}",
            f"RUN python3 -m venv /opt/venv && /opt/venv/bin/python -m pip install --no-cache-dir {words}",
            "ENV PATH=/opt/venv/bin:$PATH",
        ]
    note = "" if image.confidence == "vendor" else f"nvidia/cuda:{tag} is known from public Dockerfiles only"
    return tuple(lines), note


def _candidates(stack: Stack, request: Request, matrix: Matrix) -> Iterator[tuple[CudaImage, OsRelease]]:
    """Images of the host's distribution and of Ubuntu, whose Python fits and whose CUDA the driver runs."""
    from packaging.specifiers import SpecifierSet

    pythons = SpecifierSet(stack.python.requires) if stack.python is not None else SpecifierSet()
    limit = _newest_cuda(stack, matrix)
    systems = {
        system.id: system
        for system in matrix.os.systems
        if (system.id == request.os or system.family == "ubuntu")
        and system.family in _PYTHON
        and system.python != "unknown"
        and system.python in pythons
    }
    for image in matrix.images.images:
        if limit and nv(cuda_minor(image.cuda)) > nv(limit):
            continue
        for name in image.systems.get(request.arch or "x86_64", ()):
            if name in systems:
                yield image, systems[name]


def _newest_cuda(stack: Stack, matrix: Matrix) -> str:
    """Return the newest CUDA that an image may have: the driver's own, for NVIDIA's images refuse an older driver."""
    branches = matrix.driver.branches
    branch = next((row for row in branches if stack.driver and str(row.branch) == stack.driver.branch), None)
    own = (branch and branch.cuda) or ""
    return max(
        (text for text in (own, cuda_minor(stack.cuda.version) if stack.cuda else "") if text), key=nv, default=""
    )


def _rank(stack: Stack, request: Request, image: CudaImage, system: OsRelease) -> tuple[bool, bool, bool, bool, object]:
    inside = [part.cuda for part in (stack.torch, stack.tensorflow, stack.jax) if part is not None]
    major = (stack.cuda.version if stack.cuda else inside[0] if inside else image.cuda).partition(".")[0]
    return (
        stack.cuda is not None and image.cuda == stack.cuda.version,
        image.cuda.partition(".")[0] == major,
        system.id == request.os,
        not inside or nv(cuda_minor(image.cuda)) <= nv(inside[0]),
        (nv(image.cuda), system.python and nv(system.python)),
    )
