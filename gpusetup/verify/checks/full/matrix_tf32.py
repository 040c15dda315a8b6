"""Matrix rate in TF32 through cuBLAS (cublasGemmEx), 8192³ on random data, all GPUs at the same time.

Expected is multiprocessors x highest clock x operations per clock of the architecture x what cuBLAS usually reaches
under the power limit. Eight whole columns of the result are compared with double precision. Short bursts with
pauses: what minutes of it do is the matter of `--level stress`. Two passes; the better one counts.

To do: see gpu.power and gpu.throttle; compare with the GPU beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.verify.checks.full import _matrix
from gpusetup.verify.registry import Finding, check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("matrix.tf32", "TF32 products at full speed", needs=("gpu", "python", "context"), seconds=_matrix.seconds)
def judge(machine: Machine) -> Finding:
    """Judge every GPU's passes and error."""
    return _matrix.judge(machine, "tf32")
