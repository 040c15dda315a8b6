"""The lines that install a stack, as `gpusetup resolve` ends with them and as `--install` prints them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.stack import Install, Resolution, Way

WAYS: tuple[Way, ...] = ("apply", "pip", "uv", "conda", "docker")
_WIDTH = 80
_INDENT = 14


def ending(resolution: Resolution, matrix: Matrix) -> str:
    """Return the end of a stack's text: what installs it, with root and without."""
    from gpusetup.plan.install import install_of

    install = install_of(resolution, matrix)
    told = [_folded(head, command) for head, command in _ways(install)]
    more = [way for way in WAYS[1:] if install.lines(way)]
    if more:
        told.append(f"more ways:    --install {', '.join(more[:-1])}{' or ' if more[1:] else ''}{more[-1]}")
    if install.pip and (python := _not_the_base(resolution, matrix)):
        told.append(f"              (uv and conda install Python {python} themselves)")
    return "\n".join(told) + "\n"


def _ways(install: Install) -> Iterator[tuple[str, str]]:
    """Return each line and what stands before it."""
    for line in install.apply:
        yield "install:", line
    for number, line in enumerate(install.pip):
        yield "" if number else "without root:", line


def _not_the_base(resolution: Resolution, matrix: Matrix) -> str:
    """Return the Python of a stack where the distribution's own python3 is another one."""
    from gpusetup.matrix.systems import by_id

    python = resolution.stack.python.version if resolution.stack.python else None
    system = by_id(matrix, resolution.request.os)
    return python if python and system is not None and system.python != python else ""


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


def _folded(head: str, command: str) -> str:
    """Break a command between its words, so that the shell still reads it as one."""
    words = _units(command)
    lines, current = [], f"{head:<{_INDENT}}{words[0]}"
    for word in words[1:]:
        if len(current) + len(word) + 3 > _WIDTH:
            lines.append(current + " \\")
            current = " " * (_INDENT + 2) + word
        else:
            current += f" {word}"
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
