"""What the bandwidth checks share: measured passes by GPU, and the GPUs they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Item
from gpusetup.verify.reasons import explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.verify.machine import Machine
    from gpusetup.verify.smi import SmiGpu

__all__ = ["failed", "gpu_of", "label", "seconds", "sound"]


def sound(machine: Machine, section: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what was measured, GPU by GPU, without the failures."""
    for key, answer in machine.answers(section).items():
        if "error" not in answer:
            yield key, answer


def failed(machine: Machine, section: str) -> list[Item]:
    """Return the failures of a measurement, and the GPUs that were opened and did not answer."""
    items = []
    answers = machine.answers(section)
    for key in machine.workers:
        if key not in answers:
            items.append(Item(subject=label(key), verdict="skip", text="not run (see cuda.context)"))
        elif "error" in answers[key]:
            items.append(Item(subject=label(key), verdict="fail", text=explain(answers[key])))
    return items


def label(key: str) -> str:
    """Return how texts speak of a GPU or a slice."""
    return f"GPU {key}"


def gpu_of(machine: Machine, key: str) -> SmiGpu | None:
    """Return the GPU behind a worker's key."""
    index = int(key.split("/", maxsplit=1)[0])
    return next((gpu for gpu in machine.gpus if gpu.index == index), None)


def seconds(machine: Machine, section: str) -> float:
    """Return how long the slowest GPU took."""
    return max((float(answer.get("seconds", 0)) for answer in machine.answers(section).values()), default=0.0)
