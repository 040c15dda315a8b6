"""The peer-to-peer matrix, written by the source's copy engine: every ordered pair of GPUs.

Expected is the sum of the NVLinks' rates between the two; over PCI Express it is the link's bandwidth, and low
figures are a warning only, since sockets and switches between decide. One pair at a time; two passes, the better
one counts.

To do: see nvlink.links and p2p.access; compare the row and the column of the GPU that is slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.verify.checks.full import _peer
from gpusetup.verify.registry import Finding, check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("p2p.write", "Peer writes at full speed", needs=("gpu", "pairs"), seconds=_peer.seconds)
def judge(machine: Machine) -> Finding:
    """Judge every pair."""
    return _peer.judge(machine, "write")
