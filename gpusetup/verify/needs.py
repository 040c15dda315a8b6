"""What checks need before they can say anything, each with the reason when it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.verify.machine import Machine

__all__ = ["NEEDS", "missing"]


def _gpu(machine: Machine) -> Finding | None:
    if machine.simulated:
        return Finding("skip", "the GPU is simulated")
    if machine.facts.get("error"):
        return Finding("fail", f"not checked: the host probe failed: {machine.facts['error']}")
    if not machine.has_gpu:
        return Finding("skip", "no NVIDIA GPU on PCI")
    return None


def _expected(machine: Machine) -> Finding | None:
    """A machine without a GPU passes for one that needs none, unless something says that it has them."""
    lacking = _gpu(machine)
    missing_one = lacking is not None and lacking.verdict == "skip" and not machine.simulated
    return None if missing_one and machine.wanted.gpu_expected else lacking


def _smi(machine: Machine) -> Finding | None:
    if machine.gpus:
        return None
    return Finding("skip", "not checked: nvidia-smi gave no list of GPUs (see driver.responds)")


def _python(machine: Machine) -> Finding | None:
    from gpusetup.verify.reasons import interpreter_problem

    if machine.workers:
        return None
    return Finding("skip", interpreter_problem(machine) or "not run: no GPU was found (see gpu.count)")


def _context(machine: Machine) -> Finding | None:
    """At least one GPU could be opened."""
    if any("error" not in worker.get("open", {"error": ""}) for worker in machine.workers.values()):
        return None
    return Finding("skip", "not run: no GPU could be opened (see cuda.context)")


def _pairs(machine: Machine) -> Finding | None:
    if len(machine.gpus) < 2:
        return Finding("skip", "only one GPU: no pair to test")
    if "peer" not in machine.sections and "nccl" not in machine.sections:
        whole = [gpu for gpu in machine.gpus if not machine.mig(gpu)]
        if len(whole) < 2:
            return Finding("unsupported", "MIG instances have no peers")
        return Finding("skip", "not run: fewer than two GPUs could be opened (see cuda.context)")
    return None


NEEDS: dict[str, tuple[str, Callable[[Machine], Finding | None]]] = {
    "expected": ("an NVIDIA GPU, in the machine or in what it should have", _expected),
    "gpu": ("an NVIDIA GPU in the machine", _gpu),
    "smi": ("an answer from nvidia-smi", _smi),
    "python": ("the Python environment with CuPy", _python),
    "context": ("a GPU that could be opened", _context),
    "pairs": ("two GPUs or more", _pairs),
}


def missing(needs: tuple[str, ...], machine: Machine) -> Finding | None:
    """Return the finding of the first need that is not met."""
    for need in needs:
        finding = NEEDS[need][1](machine)
        if finding is not None:
            return finding
    return None
