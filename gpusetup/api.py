"""gpusetup for Python programs: the lookups, typed. What changes hosts is a command, not a function.

    from gpusetup.api import resolve

    answer = resolve("torch==2.6.*", gpu=["v100"], os="ubuntu22.04")
    print(answer.stack.driver.version, answer.stack.torch.version)

A question that has no answer raises `gpusetup.errors.NoStackError`, whose document holds the conflict; input that
cannot be used raises `gpusetup.errors.BadInputError`. Both are `gpusetup.errors.GpuSetupError`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.model.answers import Clash
    from gpusetup.model.diagnosis import Finding
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.request import Request
    from gpusetup.model.stack import Resolution

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
    from msgspec.structs import replace

    from gpusetup.matrix.load import matrix as load
    from gpusetup.plan.install import install_of
    from gpusetup.resolve.api import resolve as answer

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
    """Return the rows of the matrix that fit, newest first; the one with `chosen` is what `resolve` takes.

    The rows are about the framework, package or library that is named first, or else about CUDA.
    """
    from gpusetup.matrix.load import matrix as load
    from gpusetup.resolve.lookup import lookup

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
    """Return the rules that forbid a version (`torch==2.6.0`) here; nothing where it can be had."""
    import msgspec

    from gpusetup.errors import NoStackError
    from gpusetup.matrix.load import matrix as load
    from gpusetup.model.answers import Clash
    from gpusetup.resolve.api import resolve as answer

    asked = _question(
        (version, *requirements), gpu, os, arch, driver, native=native, forward=forward, allow_builds=allow_builds
    )
    try:
        answer(asked, load())
    except NoStackError as error:
        return msgspec.convert(error.to_document()["conflict"], tuple[Clash, ...])
    return ()


def facts(root: str | Path | None = None) -> HostFacts:
    """Return what this machine is, or what a captured one was (`gpusetup facts --capture`); nothing is changed."""
    from gpusetup.facts.collect import captured, this_machine
    from gpusetup.facts.products import matrix_lookup
    from gpusetup.matrix.load import matrix as load

    lookup = matrix_lookup(load())
    return this_machine(lookup) if root is None else captured(Path(root), lookup)


def diagnose(text: str) -> tuple[Finding, ...]:
    """Return the causes that an error message or a log shows, each with its fixes; nothing where none is known."""
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
    from gpusetup.matrix.load import matrix as load
    from gpusetup.resolve.requests import question

    named = (gpu,) if isinstance(gpu, str) else gpu
    return question(requirements, load(), gpus=named, os=os, arch=arch, driver=driver, **wishes)
