"""Loads the probe that hosts run, from the same files, for this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.content import host_code

if TYPE_CHECKING:
    from types import ModuleType


def load(part: str) -> ModuleType | Any:
    """Return one of the probe's modules."""
    return host_code(f"gpu_probe.{part}")
