"""nouveau is not loaded, and not in the initramfs that boots next.

A blacklist in /etc is not enough: when the initramfs was built before it, nouveau takes the GPU in early boot and
the NVIDIA module finds it occupied. Looked at: loaded modules, the initramfs of the kernel that boots next, and the
blacklists in it, in modprobe.d and on the kernel's command line.

To do: `update-initramfs -u -k all` or `dracut --force --regenerate-all` after blacklisting, then reboot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.components import judge as verdicts
from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

RIVALS = ("nouveau", "nova_core")


@check("nouveau.absent", "nouveau is off", needs=("gpu",), seconds=lambda machine: machine.took("facts"))
def judge(machine: Machine) -> Finding:
    """Look at now and at the next boot."""
    facts = machine.facts
    nouveau = facts.get("nouveau")
    if nouveau is None:
        return Finding("skip", "not checked: the list of loaded modules is missing")
    loaded = [name for name in RIVALS if name in facts.get("modules", ())]
    holding = [str(device["address"]) for device in machine.pci_gpus if device.get("bound") in RIVALS]
    if loaded or holding:
        return Finding(
            "fail",
            f"{', '.join(loaded) or 'nouveau'} is loaded" + (f" and holds {', '.join(holding)}" if holding else ""),
        )
    image = next((image for image in nouveau["initramfs"] if image["kernel"] == facts["kernel"]["next"]), None)
    if image is None:
        return Finding("pass", "not loaded; there is no initramfs in /boot")
    if image["nouveau"] is None:
        return Finding("warn", f"not loaded; the initramfs could not be listed: {str(image['why'])[:100]}")
    if not image["nouveau"]:
        return Finding("pass", f"not loaded, not in {image['path']}")
    if nouveau["cmdline_next"]:
        return Finding("pass", f"not loaded; in {image['path']}, but the kernel's command line blocks it")
    if any(way.id == "initramfs" for way in verdicts.nouveau.ways(facts)):
        return Finding(
            "fail",
            f"not loaded now, but {image['path']} holds it without a blacklist: it will be loaded at the next boot",
        )
    return Finding("pass", f"not loaded; in {image['path']} beside a blacklist")
