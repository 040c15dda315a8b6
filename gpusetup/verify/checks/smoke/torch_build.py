"""This build of PyTorch holds code for every GPU here: machine code of its architecture, or PTX to compile.

Machine code for X.y runs on X.z with z ≥ y and never across majors; PTX goes upwards only. A build without either
says `no kernel image is available` at the first operation. The nearest build that works is looked up in the matrix.

To do: install the build that is named.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.checks.smoke import _framework
from gpusetup.verify.registry import check, from_items
from gpusetup.verify.suggest import torch_build

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


def runs(capability: str, architectures: list[str]) -> str | None:
    """Return how a GPU is served: `machine code`, `PTX`, or nothing."""
    major, minor = (int(part) for part in capability.split("."))
    codes = [
        match.groups() for name in architectures if (match := re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name))
    ]
    if any(
        kind == "sm" and int(x) == major and int(y) <= minor and (not suffix or int(y) == minor or suffix == "f")
        for kind, x, y, suffix in codes
    ):
        return "machine code"
    if any(kind == "compute" and (int(x), int(y)) <= (major, minor) and not suffix for kind, x, y, suffix in codes):
        return "PTX"
    return None


@check("torch.build", "PyTorch's build fits the GPU", needs=("gpu",))
def judge(machine: Machine) -> Finding:
    """Compare the build's architectures with every GPU's."""
    missing = _framework.absent(machine, "torch", "PyTorch")
    if missing is not None:
        return Finding("skip", "could not look (see torch.cuda)") if missing.verdict == "fail" else missing
    answer = machine.sections["torch"]
    architectures = answer.get("arch_list")
    if not architectures:
        return Finding("skip", "could not look: PyTorch lists architectures only when it finds a GPU (see torch.cuda)")
    version, items = answer.get("version"), []
    for index, capability in sorted(machine.capabilities.items()):
        how = runs(capability, architectures)
        if how == "machine code":
            items.append(Item(subject=f"GPU {index}", verdict="pass", text=capability))
        elif how == "PTX":
            items.append(
                Item(
                    subject=f"GPU {index}",
                    verdict="warn",
                    text=f"runs from PTX alone (compute capability {capability}): slow first start",
                )
            )
        else:
            items.append(
                Item(
                    subject=f"GPU {index}",
                    verdict="fail",
                    text=f"{version} holds no code for capability {capability}{torch_build(capability, machine)}",
                )
            )
    listed = " ".join(architectures)
    return from_items(
        items, f"{answer.get('version')}: {listed}", nothing="could not look: the compute capability is not known"
    )
