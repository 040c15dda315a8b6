"""Typed Python functions for gpusetup's lookups. Only commands change hosts.

    from gpusetup.api import resolve

    answer = resolve("torch==2.6.*", gpu=["v100"], os="ubuntu22.04")
    print(answer.stack.driver.version, answer.stack.torch.version)

If no stack fits, they raise `gpusetup.errors.NoStackError`, whose document holds the conflict; unusable input raises
`gpusetup.errors.BadInputError`. Both derive from `gpusetup.errors.GpuSetupError`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from gpusetup.errors import NoStackError
from gpusetup.matrix.load import matrix as load
from gpusetup.model.answers import Clash
from gpusetup.model.diagnosis import Finding
from gpusetup.model.facts import HostFacts
from gpusetup.model.request import Request
from gpusetup.model.stack import Resolution
from gpusetup.plan.install import install_of
from gpusetup.resolve.api import resolve as answer
from gpusetup.resolve.lookup import lookup
from gpusetup.resolve.requests import question

Arch = Literal["x86_64", "aarch64"]


def resolve(
    *requirements: str,
    gpu: Iterable[str] = (),
    os: str | None = None,
    arch: Arch | None = None,
    driver: str | None = None,
    native: bool = False,
    forward: bool = False,
    allow_builds: bool = False,
) -> Resolution:
    """Return one complete stack, with the reason for every choice and the lines that install it."""
    asked = _question(requirements, gpu, os, arch, driver, native=native, forward=forward, allow_builds=allow_builds)
    found = answer(asked, load())
    return replace(found, install=install_of(found, load()))


def matrix(
    *requirements: str,
    gpu: Iterable[str] = (),
    os: str | None = None,
    arch: Arch | None = None,
    driver: str | None = None,
    native: bool = False,
    forward: bool = False,
    allow_builds: bool = False,
) -> tuple[dict[str, Any], ...]:
    """Return the matching rows of the matrix, newest first; `chosen` marks the row that `resolve` uses.

    The rows describe the first framework, package or library named, or CUDA if none is.
    """
    asked = _question(requirements, gpu, os, arch, driver, native=native, forward=forward, allow_builds=allow_builds)
    return tuple(lookup(asked, load()))


def why_not(
    version: str,
    *requirements: str,
    gpu: Iterable[str] = (),
    os: str | None = None,
    arch: Arch | None = None,
    driver: str | None = None,
    native: bool = False,
    forward: bool = False,
    allow_builds: bool = False,
) -> tuple[Clash, ...]:
    """Return the rules that forbid a version such as `torch==2.6.0`, or an empty tuple if none does."""
    asked = _question(
        (version, *requirements), gpu, os, arch, driver, native=native, forward=forward, allow_builds=allow_builds
    )
    try:
        answer(asked, load())
    except NoStackError as error:
        return msgspec.convert(error.to_document()["conflict"], tuple[Clash, ...])
    return ()


def facts(root: str | Path | None = None) -> HostFacts:
    """Return the facts of this machine, or of a captured one (`gpusetup facts --capture`). Changes nothing."""
    from gpusetup.facts.collect import captured, matrix_lookup, this_machine

    known = matrix_lookup(load())
    return this_machine(known) if root is None else captured(Path(root), known)


def diagnose(text: str) -> tuple[Finding, ...]:
    """Return the known causes found in an error message or a log, each with its fixes."""
    from gpusetup.doctor.findings import diagnose_text

    return diagnose_text(text)


def _question(
    requirements: Iterable[str],
    gpu: Iterable[str],
    os: str | None,
    arch: Arch | None,
    driver: str | None,
    **wishes: bool,
) -> Request:
    named = (gpu,) if isinstance(gpu, str) else gpu
    return question(requirements, load(), gpus=named, os=os, arch=arch, driver=driver, **wishes)
