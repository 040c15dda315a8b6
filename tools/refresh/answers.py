"""Compare the answers of two matrices: one question for each GPU architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import GpuSetupError
from gpusetup.model.request import Request
from gpusetup.resolve.api import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix

_TOLD = ("driver", "cuda", "torch")


def changed_answers(before: Matrix, after: Matrix) -> Iterator[str]:
    """Yield the architectures whose answer changes, with both answers."""
    for architecture, name in _representatives(before).items():
        was, now = _answer(before, name), _answer(after, name)
        if was != now:
            yield f"{architecture} ({name}): {was} -> {now}"


def _representatives(matrix: Matrix) -> dict[str, str]:
    """Return the first product of each architecture in the matrix."""
    found: dict[str, str] = {}
    for gpu in matrix.gpus.gpus:
        found.setdefault(gpu.arch, gpu.name)
    return found


def _answer(matrix: Matrix, gpu: str) -> str:
    try:
        stack = resolve(Request(gpus=(gpu,), gpu_count=1), matrix).stack
    except GpuSetupError as error:
        return error.message
    parts = [(name, stack.part(name) if name != "driver" else stack.driver) for name in _TOLD]
    return ", ".join(f"{name} {part.version}" for name, part in parts if part is not None)
