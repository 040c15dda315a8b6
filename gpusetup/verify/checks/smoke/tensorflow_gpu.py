"""TensorFlow lists every GPU; a product and a convolution come out right on each.

TensorFlow without its CUDA packages (`tensorflow[and-cuda]`) imports well and quietly computes on the CPU: then no
GPU is listed, which is a fail here.

To do: install `tensorflow[and-cuda]` into the environment that apply made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.checks.smoke import _framework
from gpusetup.verify.registry import check, from_items, in_stack

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


def _seconds(machine: Machine) -> float:
    return float((machine.sections.get("tensorflow") or {}).get("seconds", 0))


@check(
    "tensorflow.gpu",
    "TensorFlow computes on every GPU",
    needs=("gpu",),
    seconds=_seconds,
    asked=in_stack("tensorflow"),
)
def judge(machine: Machine) -> Finding:
    """Judge the list of devices, the version and the operations."""
    missing = _framework.absent(machine, "tensorflow", "TensorFlow")
    if missing is not None:
        return missing
    answer = machine.sections["tensorflow"]
    version, wanted = str(answer.get("version")), machine.wanted.version("tensorflow")
    if not answer.get("built_with_cuda"):
        return Finding("fail", f"TensorFlow {version} was built without CUDA", version, wanted)
    if wanted and version != wanted:
        return Finding("fail", f"TensorFlow is {version}, the lock says {wanted}", version, wanted)
    items = _framework.operations(answer, machine.busy)
    if len(items) < len(machine.gpus) and not any(map(machine.mig, machine.gpus)):
        return Finding(
            "fail",
            f"TensorFlow {version} sees {len(items)} of {len(machine.gpus)} GPUs: its CUDA libraries are missing",
            len(items),
            len(machine.gpus),
        )
    cudnn = (answer.get("build") or {}).get("cudnn_version")
    return from_items(items, f"{version}, built for cuDNN {cudnn}: product and convolution correct on every GPU")
