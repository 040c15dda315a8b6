"""The lines that install a stack, as `gpusetup resolve` ends with them and as `--install` prints them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.install import Install, Way
    from gpusetup.model.stack import Resolution

__all__ = ["WAYS", "copied", "ending"]

WAYS: tuple[Way, ...] = ("apply", "pip", "uv", "conda", "docker")
_WIDTH = 80


def ending(resolution: Resolution, matrix: Matrix) -> str:
    """Return the end of a stack's text: what installs it, with root and without."""
    from gpusetup.plan.install import apply_line, pip_line

    elsewhere = resolution.request.driver_elsewhere is not None
    lines = [] if elsewhere else [("install:", apply_line(resolution.stack, resolution.request))]
    pip = pip_line(resolution.stack, matrix)
    if pip:
        lines.append(("without root:", pip))
    told = [_folded(f"{head:<14}{command}", indent=16) for head, command in lines]
    return "\n".join([*told, "more ways: --install pip, uv, conda or docker"]) + "\n"


def copied(install: Install, way: Way) -> str:
    """Return the lines of one way and nothing else, for a shell or a file."""
    lines = install.lines(way)
    if not lines:
        raise BadInputError(
            "GS-134",
            f"{way} cannot install this stack",
            path=f"--install {way}",
            note=install.notes.get(way, ""),
            hint=next(iter(install.apply), ""),
        )
    return "\n".join(lines) + "\n"


def _folded(command: str, *, indent: int) -> str:
    """Break a command between its words, so that the shell still reads it as one."""
    lines, current = [], ""
    for word in _units(command):
        if current.strip() and len(current) + len(word) + 3 > _WIDTH:
            lines.append(current + " \\")
            current = " " * indent + word
        else:
            current = f"{current} {word}" if current else word
    return "\n".join([*lines, current])


def _units(command: str) -> list[str]:
    """Return the words of a command, an option together with its value."""
    units: list[str] = []
    for word in command.split(" "):
        if units and units[-1].startswith("-") and " " not in units[-1]:
            units[-1] += f" {word}"
        else:
            units.append(word)
    return units
