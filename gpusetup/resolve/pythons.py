"""Which Pythons a stack may be for: the system's own, its packages of others, or one that somebody asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.resolve.domains import PYTHONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.resolve.domains import Value
    from gpusetup.resolve.space import Space

__all__ = ["OTHERS", "add_pythons", "own_python", "python_rank", "pythons"]

OTHERS = ("3.12", "3.13", "3.11", "3.14", "3.10", "3.9", "3.8", "3.15", "3.7", "3.6")
"""What to try instead of a system's own, that with the most wheels first."""


def pythons(space: Space) -> tuple[str, ...]:
    """Return the Pythons that can be had without asking for one, the preferred first; empty when nobody knows."""
    if space.request.pythons is not None:
        return space.request.pythons
    system = space.os
    if system is None or system.python == "unknown":
        return ()
    return (system.python, *(row.version for row in system.pythons if not row.prerelease))


def add_pythons(space: Space) -> None:
    """Leave the Pythons that the system has or packages, unless somebody asks for one."""
    known = pythons(space)
    if known and "python" not in space.named:
        space.unary("distribution-python", "python", lambda value: value.version in known, subject=(space.os, known))


def python_rank(space: Space) -> Callable[[Value], Any]:
    """The system's own Python before packages of others, in their order; the newest of what is left."""
    known = {version: index for index, version in enumerate(pythons(space))}
    newest = {version: index for index, version in enumerate(reversed(PYTHONS))}
    return lambda value: (known.get(value.version, len(known)), newest[value.version])


def own_python(space: Space) -> str:
    """Return the Python that the system calls python3, or "unknown"."""
    return next(iter(pythons(space)), "unknown")
