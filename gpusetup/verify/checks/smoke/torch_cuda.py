"""PyTorch sees every GPU; a product and a convolution (cuDNN) come out right on each.

In its own process, in the environment that apply made. `is_available()` alone is not enough: it is true for builds
that hold no code for this GPU.

To do: the text names what PyTorch said; see torch.build for the wheel that fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.checks.smoke import _framework
from gpusetup.verify.registry import check, from_items, in_stack

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


def _seconds(machine: Machine) -> float:
    return float(
        (machine.answers("torch") is not None and (machine.sections.get("torch") or {}).get("seconds", 0)) or 0
    )


@check(
    "torch.cuda",
    "PyTorch computes on every GPU",
    needs=("gpu",),
    seconds=_seconds,
    asked=in_stack("torch"),
)
def judge(machine: Machine) -> Finding:
    """Judge availability, version and operations."""
    missing = _framework.absent(machine, "torch", "PyTorch")
    if missing is not None:
        return missing
    answer = machine.sections["torch"]
    version, wanted = str(answer.get("version")), machine.wanted.version("torch")
    if not answer.get("available"):
        if not answer.get("cuda"):
            return Finding("fail", f"PyTorch {version} was built without CUDA", version, wanted)
        return Finding(
            "fail", f"PyTorch {version} finds no GPU: {answer.get('why_not') or 'it does not say why'}", version, wanted
        )
    if wanted and version.split("+", maxsplit=1)[0] != wanted.split("+")[0]:
        return Finding("fail", f"PyTorch is {version}, the lock says {wanted}", version, wanted)
    items = _framework.operations(answer, machine.busy)
    if machine.gpus and len(items) < len(machine.gpus) and not any(map(machine.mig, machine.gpus)):
        return Finding("fail", f"PyTorch sees {len(items)} of {len(machine.gpus)} GPUs", len(items), len(machine.gpus))
    cudnn = answer.get("cudnn")
    named = (
        f", cuDNN {cudnn // 10000}.{cudnn % 10000 // 100}.{cudnn % 100}"
        if cudnn and cudnn >= 90000
        else f", cuDNN {cudnn}"
        if cudnn
        else ""
    )
    return from_items(items, f"{version}{named}: product and convolution correct on every GPU")
