"""Which gpusetup this is: what `gpusetup --version --verbose --format json` prints."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

InstallKind = Literal["checkout", "deb", "rpm", "package", "single file", "uv", "pipx", "virtual environment", "system"]


class Overlay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a setting of the environment replaces."""

    setting: str
    place: str
    files: tuple[str, ...] = ()
    """The files of the matrix that stand there."""


class MatrixInForce(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The matrix that answers; `place` is empty for the one that came along."""

    date: str
    digest: str
    place: str


class About(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that decides what this gpusetup answers and does."""

    schema: Literal["gpusetup/version/1"] = "gpusetup/version/1"
    ok: Literal[True] = True
    version: str
    install: InstallKind
    place: str
    """The folder of the program's own files."""
    matrix: MatrixInForce
    overlays: tuple[Overlay, ...]
    collection: str
    """Its folder, or why it cannot be found."""
    python: str
    interpreter: str
    platform: str
    libraries: dict[str, str | None]
    """Each library's version; null where it is not installed."""
