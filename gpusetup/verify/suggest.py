"""The nearest build that works, looked up in the compatibility matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

__all__ = ["torch_build"]


def torch_build(capability: str, machine: Machine) -> str:
    """Return `; take …` with the newest stable PyTorch build that holds code for this GPU and starts on this driver."""
    from gpusetup.errors import GpuSetupError
    from gpusetup.matrix.load import matrix
    from gpusetup.model.request import Request, Requirement
    from gpusetup.resolve.api import resolve

    request = Request(
        requirements=(Requirement(component="torch"),),
        gpus=(f"sm_{capability.replace('.', '')}",),
        driver=machine.module_version,
    )
    try:
        found = resolve(request, matrix()).stack.torch
    except GpuSetupError:
        return "; no PyTorch build in the matrix does so with this driver"
    return f"; use torch=={found.version}+{found.variant} ({found.index_url})" if found is not None else ""
