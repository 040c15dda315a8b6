"""The PCI Express link runs at the generation and width that the GPU and its slot can do.

Width is judged now, since it does not change with load: a link at x8 in an x16 slot is a badly seated card or
riser. Generation is judged by what the link can reach (GPU and slot together): idle GPUs save power at a lower one,
so the current generation is a warning on a GPU that is working and nothing on one that idles. Replay counters show
a bad link.

To do: reseat the card, exchange the riser, look for a bifurcated slot in the firmware's settings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.expected import setting
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine
    from gpusetup.verify.smi import SmiGpu


@check("pcie.link", "PCI Express at full width", needs=("gpu", "smi"), seconds=lambda machine: machine.took("smi"))
def judge(machine: Machine) -> Finding:
    """Judge every GPU's link."""
    slots = {str(device.get("address", "")).lower(): device for device in machine.pci_gpus}
    items = [_one(gpu, slots.get(gpu.bus_id, {})) for gpu in machine.gpus]
    first = machine.gpus[0]
    generation, width = (first.number(f"{LINK}/{path}") or 0 for path in ("pcie_gen/max_link_gen", WIDTH))
    link = f"generation {generation:.0f}, x{width:.0f}"
    return from_items(items, f"{link} on every GPU" if len(items) > 1 else link, unit="lanes")


LINK = "pci/pci_gpu_link_info"
WIDTH = "link_widths/current_link_width"


def _one(gpu: SmiGpu, slot: dict[str, Any]) -> Item:
    width, widest = (
        gpu.number(f"{LINK}/link_widths/current_link_width"),
        gpu.number(f"{LINK}/link_widths/max_link_width"),
    )
    now, best = gpu.number(f"{LINK}/pcie_gen/current_link_gen"), gpu.number(f"{LINK}/pcie_gen/max_link_gen")
    if width is None or widest is None:
        return Item(subject=gpu.label, verdict="unsupported", text="reports no PCI Express link")
    room = re.match(r"\d+", str((slot.get("link") or {}).get("slot_max_width") or ""))
    able = min(int(widest), int(room.group())) if room and int(room.group()) > 0 else int(widest)
    if width < able:
        return Item(
            subject=gpu.label,
            verdict="fail",
            text=f"link at x{width:.0f}, x{able} is possible",
            measured=int(width),
            expected=able,
            limit=able,
        )
    if able < widest:
        return Item(
            subject=gpu.label,
            verdict="warn",
            text=f"the slot has {able} lanes, the GPU {widest:.0f}",
            measured=int(width),
            expected=int(widest),
            limit=able,
        )
    working = (gpu.number("utilization/gpu_util") or 0) > 20
    if now is not None and best is not None and now < best and (working or gpu.text("performance_state") == "P0"):
        return Item(
            subject=gpu.label,
            verdict="warn",
            text=f"link at generation {now:.0f} under load, {best:.0f} is possible",
            measured=now,
            expected=best,
            limit=best,
        )
    replays, many = gpu.number("pci/replay_counter") or 0, float(setting("pcie_replays_warn"))
    if replays > many:
        return Item(
            subject=gpu.label,
            verdict="warn",
            text=f"{replays:.0f} packets were retransmitted: the link is unreliable",
            measured=replays,
            expected=0,
            limit=many,
        )
    return Item(subject=gpu.label, verdict="pass", measured=int(width), expected=able, limit=able)
