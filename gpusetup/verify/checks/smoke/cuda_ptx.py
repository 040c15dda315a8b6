"""The driver compiles the PTX that this NVRTC writes.

With a toolkit newer than the driver (minor-version compatibility) ready machine code runs and PTX does not: CUDA
error 222. Libraries that compile at run time then stop in odd places.

To do: a driver of the toolkit's own branch or newer, or an older toolkit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.verify.checks.smoke import _part
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Finding
    from gpusetup.verify.machine import Machine


@check("cuda.ptx", "The driver compiles PTX", needs=("gpu", "python", "context"), seconds=_part.seconds("ptx"))
def judge(machine: Machine) -> Finding:
    """Judge a kernel that went through PTX."""
    found = _part.items(machine, "ptx", _judge)
    versions = {str(worker.get("smoke", {}).get("ptx", {}).get("ptx_version")) for worker in machine.workers.values()}
    return from_items(found, f"PTX {', '.join(sorted(versions - {'None'}))} compiled and run")


def _judge(answer: dict[str, Any]) -> tuple[bool, str]:
    return answer.get("wrong") == 0, "" if answer.get("wrong") == 0 else f"{answer.get('wrong')} wrong elements"
