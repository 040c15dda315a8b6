"""RDMA network adapters, and what lets them and storage access GPU memory directly."""

import os
import re
from typing import Any, Dict, List, Optional, Sequence

from . import pci
from .host import LiveHost, lines_with

_CLASS = "/sys/class/infiniband"
_LANES = {
    "2.5": 2.5, "5.0": 5.0, "10.0": 10.0, "14.0625": 14.0, "25.78125": 25.0, "53.125": 50.0, "106.25": 100.0,
    "212.5": 200.0,
}  # fmt: skip
"""Signalling rate of a port → Gb/s of a lane as the kernel counts it in `rate`."""
_CUFILE = "/etc/cufile.json"
_SYMBOLS = {"peer_memory": b" ib_register_peer_memory_client", "p2pdma": b" p2pdma_pgmap_ops"}


def collect(host: LiveHost, machine: LiveHost, managers: Sequence[str] = ()) -> Optional[Dict[str, Any]]:
    """Return the RDMA adapters and related system settings; None without one. `managers` only run NVSwitches."""
    hcas = [_hca(machine, name) for name in machine.names(_CLASS) if name not in managers]
    if not hcas:
        return None
    symbols = _symbols(host) or {}
    return {"hcas": hcas, "peer_memory": symbols.get("peer_memory"), "memlock": _memlock(host)}


def storage(host: LiveHost) -> Optional[Dict[str, Any]]:
    """Return what cuFile can use to read files into GPU memory; None if nothing of it is installed."""
    text = host.read(_CUFILE)
    version = host.value("/sys/module/nvidia_fs/version")
    if text is None and version is None and not host.exists("/proc/driver/nvidia-fs"):
        return None
    drives = len(host.names("/sys/class/nvme", "nvme[0-9]*"))
    # kallsyms has megabytes, and a toolkit alone installs cufile.json: read it only if there are drives.
    symbols = (_symbols(host) or {}) if drives else {}
    params = host.read("/proc/driver/nvidia/params", keep=lines_with(r"^RegistryDwords:")) or ""
    return {
        "nvidia_fs": version,
        "p2pdma": symbols.get("p2pdma"),
        "multipath": {"Y": True, "N": False}.get(host.value("/sys/module/nvme_core/parameters/multipath") or ""),
        "registry": params.partition(":")[2].strip().strip('"'),
        "use_pci_p2pdma": _is_on(text or "", "use_pci_p2pdma"),
        "drives": drives,
    }


def _is_on(text: str, name: str) -> Optional[bool]:
    """Return a boolean of cufile.json (JSON with comments); None when it is not set."""
    plain = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    found = re.search(rf'"{name}"\s*:\s*(true|false)', plain)
    return found.group(1) == "true" if found else None


def _symbols(host: LiveHost) -> Optional[Dict[str, bool]]:
    answer: Optional[Dict[str, bool]] = host.observe("symbols", lambda: _in_kernel(host))
    return answer


def _in_kernel(host: LiveHost) -> Optional[Dict[str, bool]]:
    raw = host.inside("/proc/kallsyms")
    try:
        with open(raw, "rb") as handle:
            text = handle.read()
    except OSError:
        return None
    return {name: symbol in text for name, symbol in _SYMBOLS.items()} if text else None


def _memlock(host: LiveHost) -> Dict[str, Any]:
    """Return this session's limit of locked memory in KiB (None: any), and whether limits.d lifts it."""
    limits = host.read("/proc/self/limits", keep=lines_with(r"^Max locked memory")) or ""
    own = re.search(r"^Max locked memory\s+(\S+)", limits, re.MULTILINE)
    folder = "/etc/security/limits.d"
    paths = ["/etc/security/limits.conf"] + [folder + "/" + name for name in host.names(folder, "*.conf")]
    lifted = any(
        re.search(r"^\*\s+(?:hard|-)\s+memlock\s+(?:unlimited|infinity|-1)\b", host.read(path) or "", re.MULTILINE)
        for path in paths
    )
    limit = own.group(1) if own else ""
    return {"kib": int(limit) >> 10 if limit.isdigit() else None, "unlimited": limit == "unlimited", "lifted": lifted}


def _hca(machine: LiveHost, name: str) -> Dict[str, Any]:
    folder = _CLASS + "/" + name
    address = os.path.basename(machine.link(folder + "/device") or "")
    place = "/sys/bus/pci/devices/" + address
    on_pci = bool(re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address))
    interfaces = machine.names(place + "/net") if on_pci else []
    return {
        "name": name,
        "address": address if on_pci else None,
        "pci_id": pci.identity(machine, place) if on_pci else None,
        "board": machine.value(folder + "/board_id"),
        "firmware": machine.value(folder + "/fw_ver"),
        "numa_node": pci.number(machine.value(place + "/numa_node")) if on_pci else None,
        "link": pci.link(machine, place, address) if on_pci else None,
        "way": pci.way_to(machine, address) if on_pci else None,
        "ports": [_port(machine, name, number, interfaces) for number in machine.names(folder + "/ports", "[0-9]*")],
    }


def _port(machine: LiveHost, name: str, number: str, interfaces: List[str]) -> Dict[str, Any]:
    folder = f"{_CLASS}/{name}/ports/{number}"
    layer = machine.value(folder + "/link_layer")
    index = int(number) - 1 if number.isdigit() else 0
    interface = interfaces[index] if index < len(interfaces) else None
    return {
        "number": int(number),
        "layer": layer,
        "state": _word(machine.value(folder + "/state")),
        "physical": _word(machine.value(folder + "/phys_state")),
        "rate": _rate(machine.value(folder + "/rate")),
        "fastest": _fastest(machine, name, number, interface if layer == "Ethernet" else None),
        "subnet_manager": _lid(machine.value(folder + "/sm_lid")),
        "interface": interface,
    }


def _fastest(machine: LiveHost, name: str, number: str, interface: Optional[str]) -> Optional[float]:
    """Return the highest rate that a port supports in Gb/s; None when unknown."""
    if interface is not None:
        answer = machine.run("ethtool:" + interface, ["ethtool", interface], 5)
        text = re.search(r"Supported link modes:(.*?)\n\t\S", answer["out"], re.DOTALL)
        rates = [int(rate) / 1000.0 for rate in re.findall(r"(\d+)base", text.group(1))] if text else []
        return max(rates) if rates else None
    argv = ["ibportstate", "-C", name, "-P", number, "-D", "0", number, "query"]
    told = machine.run(f"ibportstate:{name}:{number}", argv, 5)["out"]
    widths = re.findall(r"(\d+)X", _field(told, "LinkWidthSupported"))
    speeds = " ".join(_field(told, field) for field in re.findall(r"^(LinkSpeed\w*Supported):", told, re.MULTILINE))
    lanes = [_LANES[speed] for speed in re.findall(r"([\d.]+) Gbps", speeds) if speed in _LANES]
    # Adapters also report twelve lanes, but their connectors have four.
    wide = [int(width) for width in widths if int(width) <= 4]
    return max(lanes) * max(wide) if lanes and wide else None


def _field(text: str, name: str) -> str:
    found = re.search(rf"^{name}:\.*(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _word(text: Optional[str]) -> Optional[str]:
    """4: ACTIVE -> ACTIVE."""
    return text.partition(":")[2].strip() or text if text else None


def _rate(text: Optional[str]) -> Optional[float]:
    """400 Gb/sec (4X NDR) -> 400."""
    found = re.match(r"([\d.]+) Gb/sec", text or "")
    return float(found.group(1)) if found else None


def _lid(text: Optional[str]) -> Optional[bool]:
    """Return whether a subnet manager has configured the port: its LID is then above zero."""
    try:
        return int(text, 16) > 0 if text else None
    except ValueError:
        return None
