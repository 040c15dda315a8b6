"""Keep the compilers that a framework brings as wheels within what the driver can load.

A framework that asks for them without an upper limit gets the newest ones, whose PTX an older driver refuses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.versions import cuda_minor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.stack import Stack

__all__ = ["CAPPED_MAJOR", "compiler_caps", "compiler_wheels", "limit_of", "limits", "without_caps"]

_RULE = "compiler-wheels-within-driver"
_COMPANIONS = ("torchvision", "torchaudio")
CAPPED_MAJOR = 13
"""A CUDA major: the wheels of earlier ones have it in their names: nvidia-nvjitlink<12.3 is nowhere to be had."""
_CAP = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)<([0-9.]+)")


def compiler_caps(stack: Stack, matrix: Matrix, *, toolkit: bool) -> tuple[str, ...]:
    """Return `package<version` for each compiler wheel that the stack's wheels bring without an upper limit.

    The driver that is kept or chosen decides, but nothing goes below the CUDA that the stack itself pins.
    `toolkit`: the toolkit comes as wheels beside CuPy.
    """
    names, native = compiler_wheels(matrix), _cuda_of_driver(stack, matrix)
    if native is None or native[0] != CAPPED_MAJOR:
        return ()
    brought: set[str] = set()
    users = list(_frameworks(stack, matrix))
    if toolkit and stack.cuda is not None:
        users.append((stack.cuda.version, {"cuda-toolkit": "[nvjitlink]"}))
    for cuda, pins in users:
        if _numbers(cuda)[0] == native[0]:
            brought.update(_floating(pins, names))
            native = max(native, _numbers(cuda))
    if brought:
        brought.update(_seen_floating(stack, matrix))
    return tuple(_below(name, native) for name in names if name in brought)


def limits(cuda: str, matrix: Matrix) -> tuple[str, ...]:
    """Return `package<version` for every compiler wheel, at a CUDA; none for a major that no limit is known for."""
    names = compiler_wheels(matrix)
    return tuple(_below(name, _numbers(cuda)) for name in names) if _numbers(cuda)[0] == CAPPED_MAJOR else ()


def compiler_wheels(matrix: Matrix) -> tuple[str, ...]:
    """Return the names of the wheels that hold a compiler, or what goes with one."""
    names = next((rule.value for rule in matrix.cuda.rules if rule.id == _RULE), ())
    return names if isinstance(names, tuple) else ()


def _below(name: str, cuda: tuple[int, int]) -> str:
    return f"{name}<{cuda[0]}.{cuda[1] + 1}"


def limit_of(line: str) -> tuple[str, str] | None:
    """Return package and version of such a limit; None for every other line of a requirements file."""
    found = _CAP.fullmatch(line)
    return (found[1], found[2]) if found else None


def without_caps(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines that say which packages are wanted, whatever driver they are for."""
    return tuple(line for line in lines if limit_of(line) is None)


def _cuda_of_driver(stack: Stack, matrix: Matrix) -> tuple[int, int] | None:
    """Return the CUDA whose own driver this is; None when nobody knows, and with cuda-compat in front of it."""
    driver = stack.driver
    if driver is None or driver.relation == "forward":
        return None
    branches = matrix.driver.branches
    found = next((branch.cuda for branch in branches if str(branch.branch) == driver.branch), None)
    return _numbers(found) if found else None


def _frameworks(stack: Stack, matrix: Matrix) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the CUDA of each framework and what it requires of CUDA's wheels."""
    if stack.torch is not None:
        version = stack.torch.version
        yield stack.torch.cuda, next((row.pins for row in matrix.torch.releases if row.version == version), {})
    if stack.jax is not None:
        chosen = (stack.jax.version, stack.jax.extra)
        rows = matrix.jax.releases
        # JAX takes any minor release of its major: the lowest of them is no limit from below.
        major = stack.jax.cuda.partition(".")[0]
        yield f"{major}.0", next((row.pins for row in rows if (row.version, row.extra) == chosen), {})


def _seen_floating(stack: Stack, matrix: Matrix) -> Iterator[str]:
    """Yield the compiler wheels that came too new when a package of the stack was resolved without limits."""
    for name, chosen in stack.packages().items():
        for release in matrix.package(name).releases if name not in _COMPANIONS else ():
            if release.version == chosen.version and release.compilers:
                yield from release.compilers
                yield from ("nvidia-cuda-crt",) if "nvidia-cuda-nvcc" in release.compilers else ()


def _floating(pins: Mapping[str, str], names: tuple[str, ...]) -> Iterator[str]:
    asked = {name for name, specifier in pins.items() if not specifier[:1].isdigit()}
    if "nvidia-cuda-nvcc" in asked:
        asked.add("nvidia-cuda-crt")  # nvcc requires its headers in any version
    if "nvjitlink" in pins.get("cuda-toolkit", "").partition("]")[0].strip("[").split(","):
        asked.add("nvidia-nvjitlink")  # the one part of the toolkit to which cuda-toolkit sets no upper limit
    yield from (name for name in names if name in asked)


def _numbers(version: str) -> tuple[int, int]:
    major, minor = cuda_minor(version).split(".")
    return int(major), int(minor)
