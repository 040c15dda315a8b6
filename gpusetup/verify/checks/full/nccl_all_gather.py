"""NCCL all-gather over 2 to all GPUs, messages of 1 MiB to 4 GiB: bus bandwidth, and every element of every result.

One process per GPU without MPI; sizes and bus bandwidth are counted as nccl-tests counts them. Expected is the link
bandwidth of one GPU times what the algorithm reaches for this number of GPUs and message size; the algorithm (NVLS
or ring) is what NCCL says it set up. Messages of 1 GiB and more can fail, smaller ones warn. Wrong elements always
fail.

To do: see nvlink.links, p2p.access, fabric.state; look for NCCL_ variables that were left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.verify.checks.full import _nccl
from gpusetup.verify.registry import Finding, check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("nccl.all-gather", "NCCL all-gather at full speed", needs=("gpu", "pairs"), seconds=_nccl.seconds)
def judge(machine: Machine) -> Finding:
    """Judge every group and size."""
    return _nccl.judge(machine, "all_gather")
