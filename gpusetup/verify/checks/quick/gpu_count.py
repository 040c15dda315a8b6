"""Every GPU on the PCI bus is one that the driver took, of the kinds and number expected.

PCI lists what is plugged in, nvidia-smi what the driver could start. A GPU that is on PCI and not in nvidia-smi
fell off the bus, was refused by this driver branch or module flavour, or is held by another driver (vfio, nouveau).
With a number expected (`--gpus N`, or the baseline of the host's own last good run) a GPU that left PCI altogether
is found as well. A lock, or what apply recorded here, expects one at least.

To do: read the kernel log (`driver.log`, `kernel.xid`); power-cycle the machine; reseat or replace the GPU.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("gpu.count", "Every GPU is present", needs=("expected",), seconds=lambda machine: machine.took("smi", "facts"))
def judge(machine: Machine) -> Finding:
    """Compare PCI, nvidia-smi and what is expected."""
    seen, on_pci = machine.gpus, machine.pci_gpus
    if not machine.has_gpu:
        number = machine.wanted.gpus or 1
        text = f"no NVIDIA GPU on PCI; {machine.wanted.gpu_expected}"
        return Finding("fail", text, 0, number, number, "GPUs")
    expected = max(len(on_pci), machine.wanted.gpus or 0) or len(seen)
    kinds = ", ".join(f"{number} x {name}" for name, number in sorted(Counter(gpu.name for gpu in seen).items()))
    if len(seen) >= expected:
        extra = f"; {machine.wanted.gpus} expected" if machine.wanted.gpus and len(seen) > machine.wanted.gpus else ""
        return Finding("warn" if extra else "pass", kinds + extra, len(seen), expected, expected, "GPUs")
    present = {gpu.bus_id for gpu in seen}
    lost = [device for device in on_pci if str(device.get("address", "")).lower() not in present]
    named = ", ".join(f"{device['address']} ({device.get('bound') or 'no driver'})" for device in lost[:4])
    if lost:
        text = f"on PCI, but not used by the driver: {named}" + (f" and {len(lost) - 4} more" if len(lost) > 4 else "")
    else:
        text = f"{expected - len(seen)} missing from PCI; found  {kinds or 'none'}"
    return Finding("fail", text, len(seen), expected, expected, "GPUs")
