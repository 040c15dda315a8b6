"""Nothing stands between GPUs and adapters on PCI Express: ACS, the IOMMU, a way below one switch.

ACS that redirects (ACSCtl: ReqRedir, CmpltRedir) sends traffic between two devices below one switch up to the root and
down again: bandwidth collapses, and some platforms lose data. An IOMMU that translates does the same. Both are read
from the machine: the bridges' configuration space, the type of the IOMMU group. A GPU whose nearest adapter is not
below the same switch goes through the root, where other GPUs of the machine need not.

Looked at where there are adapters with RDMA, or GPUs that meet over PCI Express alone. In a virtual machine all of it
is its host's to set.

To do: on bare metal `setpci -s BRIDGE ECAP_ACS+0x6.w=0000` for each bridge named, at every boot before programs
start; boot with `iommu=pt` (or the IOMMU off in the firmware); put the adapter into a slot of the GPU's switch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.adapters import active, shared
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.verify.machine import Machine

_SWITCH = 3
"""Bridges above a device behind a switch at least: the switch's two, and the root's own."""


def _near(machine: Machine) -> list[dict[str, Any]]:
    """Return the adapters that carry traffic, each once."""
    named = {hca["name"]: hca for hca, _port in active(machine) if hca.get("way")}
    return list(named.values())


def _gpus(machine: Machine) -> list[dict[str, Any]]:
    return [gpu for gpu in machine.pci_gpus if gpu.get("way")]


def _here(machine: Machine) -> bool:
    gpus = _gpus(machine)
    linked = any((gpu.get("nvlinks") or {}).get("up") for gpu in gpus)
    return bool(gpus and _near(machine)) or (len(gpus) > 1 and not linked)


@check("pcie.peers", "GPUs and adapters reach each other straight", needs=("gpu",), applies=_here)
def judge(machine: Machine) -> Finding:
    """Judge what lies between them."""
    gpus, near = _gpus(machine), _near(machine)
    devices = [*((f"GPU {gpu['address']}", gpu["way"]) for gpu in gpus), *((hca["name"], hca["way"]) for hca in near)]
    if not devices:
        return Finding("skip", "the way to the GPUs is not told")
    items = [*_acs(devices), *_iommu(devices), *_switches(gpus, near)]
    unread = [name for name, way in devices if way.get("acs_redirect") is None]
    if unread and not any(item.verdict == "warn" for item in items):
        return Finding("skip", f"only root reads ACS above {', '.join(unread[:3])}")
    return from_items(items, f"{len(gpus)} GPUs, {len(near)} adapters: no ACS, no translation")


def _acs(devices: list[tuple[str, dict[str, Any]]]) -> Iterator[Item]:
    bridges = sorted({bridge for _name, way in devices for bridge in way.get("acs_redirect") or ()})
    for bridge in bridges:
        text = "ACS sends traffic between devices up to the root: setpci -s BRIDGE ECAP_ACS+0x6.w=0000"
        yield Item(subject=bridge, verdict="warn", text=text, measured="redirects", expected="off")
    if not bridges:
        yield Item(subject="ACS", verdict="pass", measured="off")


def _iommu(devices: list[tuple[str, dict[str, Any]]]) -> Iterator[Item]:
    for name, way in devices:
        kind = way.get("iommu")
        if kind and kind.startswith("DMA"):
            text = f"the IOMMU translates ({kind}): boot with iommu=pt"
            yield Item(subject=name, verdict="warn", text=text, measured=kind, expected="identity")


def _switches(gpus: list[dict[str, Any]], near: list[dict[str, Any]]) -> Iterator[Item]:
    """Where there are switches, a GPU without an adapter below its own is told; elsewhere all meet at the root."""
    if not near or not any(len((gpu["way"].get("above")) or ()) >= _SWITCH for gpu in gpus):
        return
    for gpu in gpus:
        together = [hca["name"] for hca in near if shared(gpu, hca)]
        if together:
            yield Item(subject=f"GPU {gpu['address']}", verdict="pass", text=f"beside {', '.join(together)}")
        else:
            text = "no adapter is below its switch: what it sends goes through the root"
            yield Item(subject=f"GPU {gpu['address']}", verdict="warn", text=text)
