"""The kernel module has the flavour (open or proprietary) that this GPU and the lock call for.

Blackwell and Grace Hopper work with the open modules alone, GPUs before Turing with the proprietary ones alone.
With the wrong flavour the module loads and finds no device. What a GPU allows is read from the compatibility
matrix.

To do: install the other flavour of the same version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.components import judge as verdicts
from gpusetup.model.verdict import Finding
from gpusetup.verify.products import product
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("driver.flavour", "The module's flavour fits", needs=("gpu",), seconds=lambda machine: machine.took("facts"))
def judge(machine: Machine) -> Finding:
    """Compare with what the GPUs allow and the lock names."""
    flavour = machine.module_flavour
    if flavour is None:
        return Finding("skip", "not checked: no module is loaded (see driver.version)")
    wanted = machine.wanted.flavour
    for device in machine.pci_gpus:
        known = product(device["pci_id"].partition(":")[2])
        if known is None:
            continue
        if known.module == "required" and flavour != "open":
            return Finding("fail", f"{known.label} works only with the open modules", flavour, "open")
        if known.module == "unsupported" and flavour == "open":
            return Finding("fail", f"{known.label} works only with the proprietary modules", flavour, "proprietary")
    wish = verdicts.driver.Wish(machine.module_version or "", wanted or "")
    if verdicts.driver.loaded_problem(machine.facts, wish):
        return Finding("fail", f"the {flavour} module is loaded, the lock says {wanted}", flavour, wanted)
    return Finding("pass", f"{flavour} module", flavour, wanted or flavour)
