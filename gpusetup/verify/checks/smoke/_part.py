"""What the parts of the smoke test share: one answer per GPU under a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Item
from gpusetup.verify.reasons import explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.verify.machine import Machine

__all__ = ["items", "seconds"]


def items(machine: Machine, part: str, judge: Callable[[dict[str, Any]], tuple[bool, str]]) -> list[Item]:
    """Judge one part on every GPU that was opened."""
    found = []
    for key, worker in machine.workers.items():
        subject = f"GPU {key}"
        if "error" in worker.get("open", {"error": ""}):
            found.append(Item(subject=subject, verdict="skip", text="not run: it could not be opened"))
            continue
        smoke = worker.get("smoke", {})
        answer = smoke.get(part) if "error" not in smoke else smoke
        if not isinstance(answer, dict):
            found.append(Item(subject=subject, verdict="skip", text="not run: the test ended before it"))
        elif "error" in answer:
            found.append(Item(subject=subject, verdict="fail", text=explain(answer)))
        else:
            well, text = judge(answer)
            found.append(Item(subject=subject, verdict="pass" if well else "fail", text=text))
    return found


def seconds(part: str) -> Callable[[Machine], float]:
    """Return how long a part took, on the slowest GPU."""

    def took(machine: Machine) -> float:
        parts = [worker.get("smoke", {}).get(part) for worker in machine.workers.values()]
        return max((float(answer.get("seconds", 0)) for answer in parts if isinstance(answer, dict)), default=0.0)

    return took
