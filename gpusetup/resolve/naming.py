"""How components, values and versions are called in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.resolve.domains import TorchValue, Value, parsed
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.matrix.gpus import GpuKind
    from gpusetup.resolve.space import Space

__all__ = ["label", "listed", "nearest", "only_module", "published_versions", "span", "title"]

_NAMES = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL", "cupy": "CuPy", "tensorflow": "TensorFlow", "jax": "JAX"}


def title(component: str) -> str:
    """Return a component's name as people write it."""
    return _NAMES.get(component, component)


def label(component: str, value: Value) -> str:
    """Return a value as people write it."""
    if isinstance(value, TorchValue):
        return f"torch {value.version}+{value.build.variant}"
    return f"{title(component)} {value.version}"


def only_module(gpu: GpuKind) -> str:
    """Say that a GPU works with one flavour of the kernel modules alone; empty for one that takes either."""
    flavour = {"required": "open", "unsupported": "proprietary"}.get(gpu.module, "")
    return f"{gpu.label} ({gpu.arch}) works only with the {flavour} kernel modules" if flavour else ""


def span(versions: Iterable[str]) -> str:
    """Return versions as a short range."""
    ordered = sorted(set(versions), key=parsed)
    if len(ordered) <= 3:
        return ", ".join(ordered)
    return f"{ordered[0]} to {ordered[-1]}"


def listed(texts: Iterable[str]) -> str:
    """Return words as a list in a sentence: a, b and c."""
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


def published_versions(space: Space, component: str) -> list[str]:
    """Return every version of a component that somebody published for Linux, oldest first."""
    if component == "driver":
        return sorted((item.version for item in space.matrix.driver.versions if item.platform == "linux"), key=nv)
    return sorted({value.version for value in space.values[component]}, key=parsed)


def nearest(published: list[str], wanted: str) -> list[str]:
    """Return up to three versions around the wanted one, of the same series where there are some."""
    below = [text for text in published if parsed(text) < parsed(wanted)]
    above = [text for text in published if parsed(text) > parsed(wanted)]
    return [*below[-2:], *above[:1]] if above else below[-3:]
