"""A CUDA context can be created on every GPU.

The moment at which a broken machine shows although nvidia-smi is content: error 802 without fabric manager, 999
without nvidia-uvm, 35 with a driver that is older than the runtime, 100 or 46 with a GPU that is away, 2 when its
memory is full.

To do: the text names the cause; `gpusetup doctor` knows the way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.reasons import explain
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.model.verdict import Blame
    from gpusetup.verify.machine import Machine


def _seconds(machine: Machine) -> float:
    return max((float(worker.get("open", {}).get("seconds", 0)) for worker in machine.workers.values()), default=0.0)


@check("cuda.context", "CUDA opens every GPU", needs=("gpu", "python"), seconds=_seconds)
def judge(machine: Machine) -> Finding:
    """Judge every worker's opening."""
    items = []
    for key, worker in machine.workers.items():
        answer = worker.get("open")
        if answer is None:
            items.append(Item(subject=f"GPU {key}", verdict="skip", text="not run (see python.environment)"))
        elif "error" in answer:
            full = answer["error"] == "out-of-memory" and worker.get("busy")
            text = "another job uses all its memory: nothing could run" if full else explain(answer)
            blame: Blame = "job" if full else "driver"
            items.append(
                Item(subject=f"GPU {key}", verdict="fail", text=text, measured=answer.get("status"), blame=blame)
            )
        else:
            items.append(Item(subject=f"GPU {key}", verdict="pass", text=str(answer.get("name"))))
    names = {str(machine.opened(key).get("name")) for key in machine.workers}
    return from_items(items, f"{len(items)} x {', '.join(sorted(names))}", nothing="not run: no worker was started")
