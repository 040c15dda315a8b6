"""Find GPUs and NVSwitches on the PCI bus; no driver is needed."""

import os
from typing import Any, Dict, List, Optional

from .host import LiveHost

NVIDIA = "10de"
_DEVICES = "/sys/bus/pci/devices"
_DISPLAY = "03"
_BRIDGE_OTHER = "0680"
_VENDOR_SPECIFIC = 0x09
# Display adapters that are not a laptop's second GPU: server management chips and virtual displays.
_CONSOLE_VENDORS = ("1a03", "102b", "1234", "1b36", "1013", "15ad", "1414", "1af4")


def collect(host: LiveHost) -> Dict[str, Any]:
    """Return {"gpus", "nvswitches", "other_displays"}."""
    gpus, switches, others = [], [], []
    for address in host.names(_DEVICES):
        folder = _DEVICES + "/" + address
        klass = _hex(host.value(folder + "/class"))
        vendor = _hex(host.value(folder + "/vendor"))
        if klass is None or vendor is None:
            continue
        if klass.startswith(_DISPLAY):
            if vendor == NVIDIA:
                gpus.append(_gpu(host, folder, address, klass))
            elif vendor not in _CONSOLE_VENDORS:
                others.append(
                    {"address": address, "pci_id": vendor + ":" + (_hex(host.value(folder + "/device")) or "")}
                )
        elif klass.startswith(_BRIDGE_OTHER) and vendor == NVIDIA:
            switches.append({"address": address, "pci_id": NVIDIA + ":" + (_hex(host.value(folder + "/device")) or "")})
    return {"gpus": gpus, "nvswitches": switches, "other_displays": others}


def nvswitch(host: LiveHost, switches: List[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return how NVSwitches are visible on this machine, None without NVSwitches that it manages itself."""
    devices = host.names("/proc/driver/nvidia-nvswitch/devices")
    managers = []
    for name in host.names("/sys/class/infiniband"):
        vpd = f"/sys/class/infiniband/{name}/device/vpd"
        if host.observe("nvlink5:" + name, lambda path=vpd: _is_switch_manager(host, path)):
            managers.append(name)
    if not (switches or devices or managers):
        return None
    return {
        "kind": "pci" if switches or devices else "nvlink5",
        "pci": switches,
        "devices": len(devices),
        "managers": managers,
    }


def _is_switch_manager(host: LiveHost, path: str) -> bool:
    """Return whether a ConnectX function manages NVSwitches (fourth generation switches are not on PCI themselves)."""
    try:
        with open(host.inside(path), "rb") as handle:
            return b"SW_MNG" in handle.read(4096)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            host.note("nvswitch", f"{path}: {error.strerror}")
        return False


def _gpu(host: LiveHost, folder: str, address: str, klass: str) -> Dict[str, Any]:
    device = _hex(host.value(folder + "/device")) or ""
    subsystem = "{}:{}".format(
        _hex(host.value(folder + "/subsystem_vendor")) or "0000",
        _hex(host.value(folder + "/subsystem_device")) or "0000",
    )
    driver = host.link(folder + "/driver")
    return {
        "address": address,
        "pci_id": NVIDIA + ":" + device,
        "subsystem": subsystem,
        "class": klass,
        "bound": driver.rsplit("/", 1)[-1] if driver else None,
        "numa_node": number(host.value(folder + "/numa_node")),
        "boot_display": host.value(folder + "/boot_vga") == "1",
        "link": link(host, folder, address),
        "vgpu": _vgpu(host, folder),
    }


def identity(host: LiveHost, folder: str) -> str:
    """Return a device's vendor and product: 15b3:1021."""
    return ":".join(_hex(host.value(folder + "/" + part)) or "0000" for part in ("vendor", "device"))


def link(host: LiveHost, folder: str, address: str) -> Dict[str, Any]:
    """Return the PCI Express link of a device: current, maximum, and the maximum of its slot."""
    return dict(
        host.observe("slot:" + address, lambda: _slot(host, folder)) or {},
        width=number(host.value(folder + "/current_link_width")),
        speed=host.value(folder + "/current_link_speed"),
        max_width=number(host.value(folder + "/max_link_width")),
        max_speed=host.value(folder + "/max_link_speed"),
    )


def _slot(host: LiveHost, folder: str) -> Any:
    """Return the maximum link of a device's slot, from the bridge above it."""
    above = os.path.dirname(os.path.realpath(host.inside(folder)))
    return {
        "slot_max_width": number(host.value(above + "/max_link_width")),
        "slot_max_speed": host.value(above + "/max_link_speed"),
    }


def _vgpu(host: LiveHost, folder: str) -> Optional[bool]:
    """Return whether the device is a vGPU (its vendor capability has the signature "VF"); None when unreadable."""
    config = host.read_bytes(folder + "/config", limit=256)
    if config is None or len(config) < 256:
        host.note("gpus.vgpu", folder + "/config: only root reads the capabilities of a device")
        return None
    position, seen = config[0x34], set()
    while 0x40 <= position < 252 and position not in seen:
        seen.add(position)
        if config[position] == _VENDOR_SPECIFIC and config[position + 3 : position + 5] == b"VF":
            return True
        position = config[position + 1]
    return False


def _hex(text: Optional[str]) -> Optional[str]:
    """0x10de -> 10de."""
    return text[2:].lower() if text and text.startswith("0x") else text


def number(text: Optional[str]) -> Optional[int]:
    """Return the text as a number, None when it is not one."""
    try:
        return int(text) if text else None
    except ValueError:
        return None
