"""GPUs and NVSwitches on the PCI bus, the way to them, and settings of the machine; no driver is needed."""

import glob
import os
import re
from typing import Any, Dict, Iterator, List, Optional

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
    return any(config[at + 3 : at + 5] == b"VF" for at in _capabilities(config, _VENDOR_SPECIFIC))


def _capabilities(config: bytes, which: int) -> Iterator[int]:
    """Yield where a capability is in the first 256 bytes of a device's configuration."""
    position, seen = config[0x34] if len(config) >= 256 else 0, set()
    while 0x40 <= position <= 252 and position not in seen:
        seen.add(position)
        if config[position] == which:
            yield position
        position = config[position + 1]


def _hex(text: Optional[str]) -> Optional[str]:
    """0x10de -> 10de."""
    return text[2:].lower() if text and text.startswith("0x") else text


def number(text: Optional[str]) -> Optional[int]:
    try:
        return int(text) if text else None
    except ValueError:
        return None


_DMI = "/sys/class/dmi/id/"
_PCIE, _ACS = 0x10, 0x0D
_REDIRECT = 0x0004 | 0x0008
"""ACS bits that send requests and completions between two GPUs up to the root instead of directly."""
_REDIRECT_AT, _PAYLOAD_AT, _READ_AT = 6, 5, 12


def settings(host: LiveHost) -> Optional[Dict[str, Any]]:
    """Return a machine's settings; None from a capture without them."""
    found: Optional[Dict[str, Any]] = host.observe("settings", lambda: _look(host))
    return found


def way_to(host: LiveHost, address: str) -> Optional[Dict[str, Any]]:
    """Return the PCI path to a GPU or adapter; None from a capture without it."""
    found: Optional[Dict[str, Any]] = host.observe("way:" + address, lambda: _way(host, address))
    return found


def _look(host: LiveHost) -> Dict[str, Any]:
    cpu = _text(host, "/proc/cpuinfo")
    smt = _text(host, "/sys/devices/system/cpu/smt/active")
    return {
        "bios_vendor": _text(host, _DMI + "bios_vendor") or None,
        "bios_version": _text(host, _DMI + "bios_version") or None,
        "bios_date": _text(host, _DMI + "bios_date") or None,
        "board": _text(host, _DMI + "board_name") or None,
        "cpu": _of_cpu(cpu, "model name"),
        "microcode": _of_cpu(cpu, "microcode"),
        "smt": {"1": True, "0": False}.get(smt),
        "governor": _text(host, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        "numa_nodes": len(glob.glob(host.inside("/sys/devices/system/node") + "/node[0-9]*")) or None,
        "iommu": bool(glob.glob(host.inside("/sys/class/iommu") + "/*")),
    }


def _of_cpu(text: str, name: str) -> Optional[str]:
    found = re.search(rf"^{name}\s*:\s*(\S.*)$", text, re.MULTILINE)
    return " ".join(found.group(1).split()) if found else None


def _way(host: LiveHost, address: str) -> Dict[str, Any]:
    place = host.inside(_DEVICES + "/" + address)
    config = _bytes(place + "/config", 4096)
    control = next((_word(config, at + 8) for at in _capabilities(config, _PCIE) if at + 10 <= 256), None)
    bridges = _bridges(os.path.realpath(place))
    configs = [_bytes(bridge + "/config", 4096) for bridge in bridges]
    known = all(len(found) > 256 for found in configs)  # without root only 64 bytes can be read
    redirect = [os.path.basename(bridge) for bridge, found in zip(bridges, configs) if _redirects(found)]
    group = os.path.basename(os.path.realpath(place + "/iommu_group"))
    return {
        "iommu": _text(host, f"/sys/kernel/iommu_groups/{group}/type") or None,
        "bridges": len(bridges),
        "above": [os.path.basename(bridge) for bridge in bridges],
        "acs_redirect": redirect if known else None,
        "max_payload": None if control is None else 128 << (control >> _PAYLOAD_AT & 7),
        "max_read_request": None if control is None else 128 << (control >> _READ_AT & 7),
        "bar_mib": _largest_bar(place + "/resource"),
    }


def _bridges(place: str) -> List[str]:
    """Return the sysfs folders of the bridges above a device, the nearest first."""
    found = []
    above = os.path.dirname(place)
    while re.search(r"/[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", above):
        found.append(above)
        above = os.path.dirname(above)
    return found


def _redirects(config: bytes) -> bool:
    position, seen = 0x100, set()
    while 0x100 <= position <= len(config) - 8 and position not in seen:
        seen.add(position)
        header = int.from_bytes(config[position : position + 4], "little")
        if header & 0xFFFF == _ACS:
            return bool(_word(config, position + _REDIRECT_AT) & _REDIRECT)
        position = header >> 20 & 0xFFC
    return False


def _word(config: bytes, at: int) -> int:
    return int.from_bytes(config[at : at + 2], "little")


def _largest_bar(path: str) -> Optional[int]:
    sizes = []
    for line in _bytes(path, 4096).decode("ascii", "replace").splitlines()[:6]:
        words = line.split()
        if len(words) == 3 and int(words[1], 16):
            sizes.append(int(words[1], 16) - int(words[0], 16) + 1)
    return max(sizes) >> 20 if sizes else None


def _text(host: LiveHost, path: str) -> str:
    return _bytes(host.inside(path), 1 << 20).decode("utf-8", "replace").strip()


def _bytes(path: str, limit: int) -> bytes:
    try:
        with open(path, "rb") as handle:
            return handle.read(limit)
    except OSError:
        return b""
