"""This build of PyTorch holds code for every GPU here: machine code of its architecture, or PTX to compile.

Machine code for X.y runs on X.z with z ≥ y and never across majors; PTX goes upwards only, and only on a driver that
is as new as the build's CUDA. Code for 9.0a runs on 9.0 alone, code for 10.0f from there on within its major. A build
without either says `no kernel image is available` at the first operation. The nearest build that works is looked up in
the matrix.

To do: install the build that is named.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.resolve.rules import way_of
from gpusetup.verify.checks.smoke import _framework
from gpusetup.verify.registry import check, from_items, in_stack
from gpusetup.verify.suggest import torch_build

if TYPE_CHECKING:
    from gpusetup.resolve.rules import Way
    from gpusetup.verify.machine import Machine


def served(capability: str, architectures: list[str], *, jit: bool = True) -> Way | None:
    """Return how a GPU is served by what PyTorch lists: sm_90, sm_90a, compute_120."""
    named = [match.groups() for name in architectures if (match := _ARCHITECTURE.fullmatch(name))]
    targets = tuple(f"{major}.{minor}" for kind, major, minor in named if kind == "sm")
    return way_of(
        targets, tuple(f"{major}.{minor}" for kind, major, minor in named if kind != "sm"), capability, jit=jit
    )


_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d[af]?)")


@check(
    "torch.build",
    "PyTorch's build fits the GPU",
    needs=("gpu",),
    asked=in_stack("torch"),
)
def judge(machine: Machine) -> Finding:
    """Compare the build's architectures with every GPU's."""
    missing = _framework.absent(machine, "torch", "PyTorch")
    if missing is not None:
        return Finding("skip", "not checked (see torch.cuda)") if missing.verdict == "fail" else missing
    answer = machine.sections["torch"]
    architectures = answer.get("arch_list")
    if not architectures:
        return Finding("skip", "not checked: PyTorch lists architectures only when it finds a GPU (see torch.cuda)")
    version, items = answer.get("version"), []
    jit = machine.compiles_ptx_of(answer.get("cuda"))
    for index, capability in sorted(machine.capabilities.items()):
        how = served(capability, architectures, jit=jit)
        if how == "sass":
            items.append(Item(subject=f"GPU {index}", verdict="pass", text=capability))
        elif how == "ptx":
            items.append(
                Item(
                    subject=f"GPU {index}",
                    verdict="warn",
                    text=f"has only PTX for this GPU (compute capability {capability}): the first start is slow",
                )
            )
        else:
            items.append(
                Item(
                    subject=f"GPU {index}",
                    verdict="fail",
                    text=(
                        f"{version} contains no code for compute capability"
                        f" {capability}{torch_build(capability, machine)}"
                    ),
                )
            )
    listed = " ".join(architectures)
    return from_items(
        items, f"{answer.get('version')}: {listed}", nothing="not checked: the compute capability is not known"
    )
