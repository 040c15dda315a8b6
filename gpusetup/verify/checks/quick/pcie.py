"""PCI Express: each GPU's link, and the paths between GPUs and adapters."""

import re
from collections.abc import Iterator
from typing import Any

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.expected import setting
from gpusetup.verify.machine import Machine, active_ports
from gpusetup.verify.registry import check, from_items
from gpusetup.verify.smi import SmiGpu


@check("pcie.link", "PCI Express at full width", needs=("gpu", "smi"), took="smi")
def pcie_link(machine: Machine) -> Finding:
    """The PCI Express link runs at the generation and width that the GPU and its slot can do.

    Width is judged now, since it does not change with load: a link at x8 in an x16 slot is a badly seated card or
    riser. Generation is judged by what the link can reach (GPU and slot together): idle GPUs save power at a lower one,
    so a low current generation is a warning on a working GPU only. Replay counters show a bad link.

    To do: reseat the card, exchange the riser, look for a bifurcated slot in the firmware's settings.
    """
    slots = {str(device.get("address", "")).lower(): device for device in machine.pci_gpus}
    items = [_link(gpu, slots.get(gpu.bus_id, {})) for gpu in machine.gpus]
    first = machine.gpus[0]
    generation, width = (first.number(f"{LINK}/{path}") for path in ("pcie_gen/max_link_gen", WIDTH))
    link = f"generation {f'{generation:.0f}' if generation else 'unknown'}, x{width or 0:.0f}"
    return from_items(items, f"{link} on every GPU" if len(items) > 1 else link, unit="lanes")


LINK = "pci/pci_gpu_link_info"
WIDTH = "link_widths/current_link_width"


def _link(gpu: SmiGpu, slot: dict[str, Any]) -> Item:
    width, widest = gpu.number(f"{LINK}/{WIDTH}"), gpu.number(f"{LINK}/link_widths/max_link_width")
    now, best = gpu.number(f"{LINK}/pcie_gen/current_link_gen"), gpu.number(f"{LINK}/pcie_gen/max_link_gen")
    if width is None or widest is None:
        return Item(gpu.label, "unsupported", "reports no PCI Express link")
    room = re.match(r"\d+", str((slot.get("link") or {}).get("slot_max_width") or ""))
    able = min(int(widest), int(room.group())) if room and int(room.group()) > 0 else int(widest)
    if width < able:
        return Item(gpu.label, "fail", f"link at x{width:.0f}, x{able} is possible", int(width), able, able)
    if able < widest:
        return Item(
            gpu.label, "warn", f"the slot has {able} lanes, the GPU {widest:.0f}", int(width), int(widest), able
        )
    working = (gpu.number("utilization/gpu_util") or 0) > 20
    if now is not None and best is not None and now < best and (working or gpu.text("performance_state") == "P0"):
        return Item(gpu.label, "warn", f"link at generation {now:.0f} under load, {best:.0f} is possible")
    replays, many = gpu.number("pci/replay_counter") or 0, float(setting("pcie_replays_warn"))
    if replays > many:
        text = f"{replays:.0f} packets were retransmitted, more than {many:.0f}: the link is unreliable"
        return Item(gpu.label, "warn", text)
    return Item(gpu.label, "pass", measured=int(width), expected=able, limit=able)


_SWITCH = 3
"""The fewest bridges above a device that is behind a switch: the switch's two, and the root's."""


def _near(machine: Machine) -> list[dict[str, Any]]:
    named = {hca["name"]: hca for hca, _port in active_ports(machine) if hca.get("way")}
    return list(named.values())


def _gpus(machine: Machine) -> list[dict[str, Any]]:
    return [gpu for gpu in machine.pci_gpus if gpu.get("way")]


def _here(machine: Machine) -> bool:
    gpus = _gpus(machine)
    linked = any((gpu.get("nvlinks") or {}).get("up") for gpu in gpus)
    return bool(gpus and _near(machine)) or (len(gpus) > 1 and not linked)


@check("pcie.peers", "GPUs and adapters reach each other directly", needs=("gpu",), applies=_here)
def pcie_peers(machine: Machine) -> Finding:
    """Nothing stands between GPUs and adapters on PCI Express: ACS, the IOMMU, a way below one switch.

    ACS that redirects (ACSCtl: ReqRedir, CmpltRedir) sends traffic between two devices below one switch up to the root
    and down again: bandwidth collapses, and some platforms lose data. An IOMMU that translates does the same. Both are
    read from the machine: the bridges' configuration space, the type of the IOMMU group. A GPU whose nearest adapter is
    not below the same switch goes through the root, where other GPUs of the machine need not.

    The check runs where there are RDMA adapters, or GPUs that only PCI Express joins. In a virtual machine only its
    host can change these settings.

    To do: on bare metal `setpci -s BRIDGE ECAP_ACS+0x6.w=0000` for each bridge named, at every boot before programs
    start; boot with `iommu=pt` (or the IOMMU off in the firmware); put the adapter into a slot of the GPU's switch.
    """
    gpus, near = _gpus(machine), _near(machine)
    devices = [*((f"GPU {gpu['address']}", gpu["way"]) for gpu in gpus), *((hca["name"], hca["way"]) for hca in near)]
    if not devices:
        return Finding("skip", "the path to the GPUs is unknown")
    items = [*_acs(devices), *_iommu(devices), *_switches(gpus, near)]
    unread = [name for name, way in devices if way.get("acs_redirect") is None]
    if unread and not any(item.verdict == "warn" for item in items):
        return Finding("skip", f"only root reads ACS above {', '.join(unread[:3])}")
    return from_items(items, f"{counted(len(gpus), 'GPU')}, {counted(len(near), 'adapter')}: no ACS, no translation")


def _acs(devices: list[tuple[str, dict[str, Any]]]) -> Iterator[Item]:
    bridges = sorted({bridge for _name, way in devices for bridge in way.get("acs_redirect") or ()})
    for bridge in bridges:
        text = "ACS sends traffic between devices up to the root: setpci -s BRIDGE ECAP_ACS+0x6.w=0000"
        yield Item(bridge, "warn", text, "redirects", "off")
    if not bridges:
        yield Item("ACS", "pass", measured="off")


def _iommu(devices: list[tuple[str, dict[str, Any]]]) -> Iterator[Item]:
    for name, way in devices:
        kind = way.get("iommu")
        if kind and kind.startswith("DMA"):
            text = f"the IOMMU translates ({kind}): boot with iommu=pt"
            yield Item(name, "warn", text, kind, "identity")


def _switches(gpus: list[dict[str, Any]], near: list[dict[str, Any]]) -> Iterator[Item]:
    """Yield a warning for each GPU without an adapter below its switch; nothing on machines without switches."""
    if not near or not any(len((gpu["way"].get("above")) or ()) >= _SWITCH for gpu in gpus):
        return
    for gpu in gpus:
        above = set(gpu["way"].get("above") or ())
        together = [hca["name"] for hca in near if above & set(hca["way"].get("above") or ())]
        if together:
            yield Item(f"GPU {gpu['address']}", "pass", f"beside {', '.join(together)}")
        else:
            text = "no adapter is below its switch: its traffic goes through the root"
            yield Item(f"GPU {gpu['address']}", "warn", text)
