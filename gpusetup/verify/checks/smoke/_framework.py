"""What PyTorch, TensorFlow and JAX have in common as checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.reasons import explain

if TYPE_CHECKING:
    from gpusetup.model.verdict import Blame
    from gpusetup.verify.machine import Machine

__all__ = ["absent", "operations"]


def absent(machine: Machine, name: str, title: str) -> Finding | None:
    """Return the finding when the framework did not run."""
    answer = machine.sections.get(name)
    wanted = machine.wanted.has(name)
    if not isinstance(answer, dict):
        interpreter = machine.sections.get("interpreter")
        if isinstance(interpreter, dict) and interpreter.get("error"):
            return Finding("skip", "not run (see python.environment)")
        if wanted:
            return Finding("fail", f"the lock has {title}, and it is not installed in this Python")
        return Finding("skip", f"{title} is not installed here")
    if answer.get("error") == "import":
        return Finding("fail", f"{title} cannot be imported: {str(answer.get('message'))[:200]}")
    if answer.get("error"):
        return Finding("fail", explain(answer))
    return None


def operations(answer: dict[str, Any], busy: frozenset[int]) -> list[Item]:
    """Judge product and convolution on every GPU."""
    items = []
    for gpu in answer.get("gpus", []):
        subject = f"GPU {gpu.get('index')}"
        if gpu.get("error"):
            text = str(gpu["error"])
            blame: Blame = ""
            if "out of memory" in text.lower() or "MemoryAllocation" in text:
                text = "out of GPU memory"
                if gpu.get("index") in busy:
                    text, blame = "out of GPU memory beside another job", "job"
            items.append(Item(subject=subject, verdict="fail", text=text.splitlines()[0][:200], blame=blame))
            continue
        for kind in ("product", "convolution"):
            error, limit = gpu.get(f"{kind}_error"), gpu.get(f"{kind}_limit")
            if error is None or limit is None or not error <= limit:
                items.append(
                    Item(
                        subject=subject,
                        verdict="fail",
                        text=f"the {kind} is off by {error}, {limit} would be rounding error",
                        measured=error,
                        limit=limit,
                        blame="gpu",
                    )
                )
                break
        else:
            items.append(Item(subject=subject, verdict="pass"))
    return items
