"""Memory keeps what is written: a pattern over up to 4 GiB, and its complement, read back on the GPU.

A GPU in use by somebody else gets 64 MiB. The whole memory is a matter of `--level stress`.

To do: reset the GPU, run `--level stress`; exchange it when words change again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.verify.checks.smoke import _part
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Finding
    from gpusetup.verify.machine import Machine


@check("gpu.memory", "Memory keeps a pattern", needs=("gpu", "python", "context"), seconds=_part.seconds("memory"))
def judge(machine: Machine) -> Finding:
    """Judge the words that changed."""
    sizes = [worker.get("smoke", {}).get("memory", {}).get("bytes", 0) for worker in machine.workers.values()]
    return from_items(
        _part.items(machine, "memory", _judge), f"{min(sizes, default=0) / 2**30:.3g} GiB or more, twice, on every GPU"
    )


def _judge(answer: dict[str, Any]) -> tuple[bool, str]:
    well = answer.get("wrong") == 0 and answer.get("bytes", 0) > 0
    return well, "" if well else f"{answer.get('wrong')} of {answer.get('bytes', 0) // 8} words changed"
