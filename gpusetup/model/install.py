"""What installs a stack: lines to copy, one set per way of installing."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Way = Literal["apply", "pip", "uv", "conda", "docker"]


class Install(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shell lines for each way, a Dockerfile for docker; empty where a way does not install this stack."""

    apply: tuple[str, ...]
    pip: tuple[str, ...]
    uv: tuple[str, ...]
    conda: tuple[str, ...]
    docker: tuple[str, ...]
    companions: dict[str, str]
    """Packages that belong to the chosen torch (torchvision, torchaudio, triton) and their versions."""
    notes: dict[Way, str]
    """What one should know about a way, or why it has no lines."""

    def lines(self, way: Way) -> tuple[str, ...]:
        """Return the lines of one way."""
        lines: tuple[str, ...] = getattr(self, way)
        return lines
