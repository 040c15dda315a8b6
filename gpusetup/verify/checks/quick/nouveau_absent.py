"""nouveau is not loaded, and not in the initramfs that boots next.

A blacklist in /etc is not enough: when the initramfs was built before it, nouveau takes the GPU in early boot and
the NVIDIA module finds it occupied. Looked at: loaded modules, the initramfs of the kernel that boots next, and the
blacklists in it, in modprobe.d and on the kernel's command line.

To do: `update-initramfs -u -k all` or `dracut --force --regenerate-all` after blacklisting, then reboot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

RIVALS = ("nouveau", "nova_core")


@check(
    "nouveau.absent", "nouveau stays away", needs=("gpu",), seconds=lambda machine: machine.took("initramfs", "module")
)
def judge(machine: Machine) -> Finding:
    """Look at now and at the next boot."""
    if "loaded" not in machine.collected("module"):
        return Finding("skip", "could not look: the list of loaded modules is missing")
    loaded = [name for name in RIVALS if name in machine.collected("module").get("loaded", [])]
    holding = [str(device["address"]) for device in machine.pci_gpus if device.get("driver") in RIVALS]
    if loaded or holding:
        return Finding(
            "fail",
            f"{', '.join(loaded) or 'nouveau'} is loaded" + (f" and holds {', '.join(holding)}" if holding else ""),
        )
    image = machine.collected("initramfs")
    blacklists = machine.collected("blacklists")
    cmdline = any("nouveau" in word for word in blacklists.get("cmdline") or [])
    blacklisted = bool(blacklists.get("modprobe")) or cmdline
    files = image.get("files")
    if files is None:
        if image.get("error"):
            return Finding("warn", f"not loaded; the initramfs could not be listed: {str(image['error'])[:100]}")
        return Finding("pass", "not loaded; there is no initramfs in /boot")
    if any("nouveau" in name or "nova" in name for name in files if name.split(".ko")[0] != name):
        if cmdline:
            return Finding("pass", f"not loaded; in {image['image']}, but the kernel's command line forbids it")
        if any("modprobe.d" in name for name in files) and blacklisted:
            return Finding("pass", f"not loaded; in {image['image']} beside a blacklist")
        return Finding(
            "fail",
            f"not loaded now, but {image['image']} holds it without a blacklist: it comes back with the next boot",
        )
    return Finding("pass", f"not loaded, not in {image['image']}")
