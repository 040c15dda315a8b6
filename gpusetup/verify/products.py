"""What the compatibility matrix knows of a GPU that was found, by its PCI device id."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.matrix.gpus import GpuKind

__all__ = ["product"]


@cache
def product(device_id: str) -> GpuKind | None:
    """Return the product with this PCI device id, None when the matrix does not list it."""
    from gpusetup.errors import GpuSetupError
    from gpusetup.matrix.gpus import find_gpu
    from gpusetup.matrix.load import matrix

    number = device_id.lower().removeprefix("0x")
    if len(number) != 4:
        return None
    try:
        return find_gpu(matrix(), f"10de:{number}")
    except GpuSetupError:
        return None
