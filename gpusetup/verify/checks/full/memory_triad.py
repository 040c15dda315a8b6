"""Device memory bandwidth of a kernel, the triad a = b + s · c: two reads and one write, every element checked.

Expected as for memory.copy. Two passes; the better one counts.

To do: as for memory.copy; a wrong element is hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.verify.checks.full import _memory
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.model.verdict import Finding
    from gpusetup.verify.machine import Machine


@check(
    "memory.triad", "Kernels use the memory at full speed", needs=("gpu", "python", "context"), seconds=_memory.seconds
)
def judge(machine: Machine) -> Finding:
    """Judge every GPU's passes."""
    return _memory.judge(machine, "triad")
