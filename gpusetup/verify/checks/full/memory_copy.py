"""Device memory bandwidth of a copy by the copy engine: bytes read plus bytes written over time.

Expected is the bandwidth of the memory bus (its width and clock, as the runtime reports them) times what a copy
usually reaches. Two passes; the better one counts. A MIG slice has a part of the memory and is not judged.

To do: look at ECC, row remapping and clocks; compare with the GPU beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.verify.checks.full import _memory
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.model.verdict import Finding
    from gpusetup.verify.machine import Machine


@check("memory.copy", "Device memory copies at full speed", needs=("gpu", "python", "context"), seconds=_memory.seconds)
def judge(machine: Machine) -> Finding:
    """Judge every GPU's passes."""
    return _memory.judge(machine, "copy")
