"""Machine settings that affect GPUs: BIOS, CPU, IOMMU, and ACS on the path to a GPU."""

import glob
import os
import re
from typing import Any, Dict, List, Optional

from .host import LiveHost

_DMI = "/sys/class/dmi/id/"
_DEVICES = "/sys/bus/pci/devices/"
_PCIE, _ACS = 0x10, 0x0D
_REDIRECT = 0x0004 | 0x0008
"""ACS bits that send requests and completions between two GPUs up to the root instead of directly."""
_REDIRECT_AT, _PAYLOAD_AT, _READ_AT = 6, 5, 12


def collect(host: LiveHost) -> Optional[Dict[str, Any]]:
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
    place = host.inside(_DEVICES + address)
    config = _bytes(place + "/config", 4096)
    control = _capability(config, _PCIE, 8)
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
            return bool(
                int.from_bytes(config[position + _REDIRECT_AT : position + _REDIRECT_AT + 2], "little") & _REDIRECT
            )
        position = header >> 20 & 0xFFC
    return False


def _capability(config: bytes, which: int, offset: int) -> Optional[int]:
    """Return 16 bits of a capability in the first 256 bytes, None without that capability."""
    if len(config) < 256:
        return None
    position, seen = config[0x34], set()
    while 0x40 <= position <= 252 and position not in seen:
        seen.add(position)
        if config[position] == which and position + offset + 2 <= 256:
            return int.from_bytes(config[position + offset : position + offset + 2], "little")
        position = config[position + 1]
    return None


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
