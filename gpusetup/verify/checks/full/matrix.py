"""Matrix rates, one check for each number format.

Expected is multiprocessors x highest clock x operations per clock of the architecture x what cuBLAS usually reaches
under the power limit. Eight whole columns of the result are compared with double precision. The load is
short bursts with pauses; `--level stress` takes minutes. Two passes; the better one counts.

To do: see gpu.power and gpu.throttle; compare with the GPU beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify import bandwidth
from gpusetup.verify.expected import matrix_rate
from gpusetup.verify.registry import Row, from_items, table

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


def judge(machine: Machine, part: str) -> Finding:
    """Judge one number format on every GPU."""
    items, rates = bandwidth.failed(machine, "matrix"), []
    for key, answer in bandwidth.sound(machine, "matrix"):
        subject, found = bandwidth.label(key), answer["formats"].get(part, {"error": "not measured"})
        if "error" in found:
            refused = (
                "NOT_SUPPORTED" in found["error"]
                or "ARCH_MISMATCH" in found["error"]
                or "INVALID_VALUE" in found["error"]
            )
            items.append(Item(subject, "unsupported" if refused else "fail", str(found["error"])[:160]))
        elif not found["deviation"] <= found["limit"]:  # NaN is never below
            text = f"the product differs by {found['deviation']}, {found['limit']} would be rounding error"
            items.append(Item(subject, "fail", text))
        elif "/" in key:
            items.append(
                Item(subject, "unsupported", "a MIG slice has a part of the multiprocessors", max(found["tflops"]))
            )
        else:
            busy = bool(machine.workers.get(key, {}).get("busy"))
            items.append(
                bandwidth.bounded(
                    subject, found["tflops"], matrix_rate(part, machine.opened(key)), "TFLOP/s", gentle=busy
                )
            )
            rates.append(max(found["tflops"]))
    text = f"{min(rates, default=0):.0f} TFLOP/s or more on every GPU"
    return from_items(items, text, unit="TFLOP/s", nothing="not run: nothing was measured")


table(
    judge,
    tuple(
        Row(
            f"matrix.{part}",
            f"{title} products at full speed",
            f"Matrix rate in {words} through cuBLAS (cublasGemmEx), 8192³ on random data, all GPUs at the same time.",
            part,
        )
        for part, title, words in (
            ("bf16", "bfloat16", "bfloat16"),
            ("fp16", "Half precision", "half precision"),
            ("fp32", "Single precision", "single precision"),
            ("tf32", "TF32", "TF32"),
        )
    ),
    needs=("gpu", "python", "context"),
    seconds=bandwidth.seconds("matrix"),
)
