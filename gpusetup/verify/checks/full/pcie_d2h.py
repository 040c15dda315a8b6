"""The device to pinned host memory, from every NUMA node, one GPU at a time; the data is checked.

Expected is the link's bandwidth (lanes and rate of the generation it can run at). The best node is judged; a node
that is far slower than the best is shown, since it is usual between sockets. Two passes; the better one counts.

To do: see pcie.link; look at the IOMMU, at BIOS settings of the memory and at the slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.verify.checks.full import _pcie
from gpusetup.verify.registry import Finding, check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("pcie.d2h", "Device to host at full speed", needs=("gpu", "python", "context"), seconds=_pcie.seconds)
def judge(machine: Machine) -> Finding:
    """Judge every GPU's best node."""
    return _pcie.judge(machine, "d2h")
