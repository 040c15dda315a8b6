"""A vGPU, or a GPU that a GRID driver runs, has its licence.

Without one the driver works at first and is slowed down within a day, so that everything looks well on the day of
the installation. `nvidia-smi -q` says whether a licence is granted and when it ends; `nvidia-gridd` renews it.

To do: `gpusetup_vgpu_token` names the site's client configuration token, and `gpusetup apply` licenses the guest;
`journalctl -u nvidia-gridd` says why a server refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.registry import check, from_items, took

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

_STATUS = "vgpu_software_licensed_product/license_status"


@check("vgpu.licence", "The vGPU has its licence", needs=("gpu", "smi"), seconds=took("smi", "facts"))
def judge(machine: Machine) -> Finding:
    """Judge every GPU that needs a licence."""
    items = []
    for gpu in machine.gpus:
        status = gpu.text(_STATUS)
        if status is None:
            continue
        if status.startswith("Licensed"):
            items.append(Item(gpu.label, "pass", measured=status))
            continue
        product = gpu.text("vgpu_software_licensed_product/licensed_product_name") or "the driver"
        text = f"{product} has no licence"
        items.append(Item(gpu.label, "fail", text, status, "Licensed"))
    if not items:
        return Finding(verdict="skip", text="no GPU here needs a licence")
    return from_items(items, "licensed")
