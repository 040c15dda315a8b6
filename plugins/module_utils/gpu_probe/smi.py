"""Query nvidia-smi, by named fields only (its banner changes) and always with a deadline.

Also the GPUs that gpusetup has reset since the boot, after the driver asked for it.
"""

import json
import re
from typing import Any, Dict, List, Optional, Tuple

from . import mig
from .host import LiveHost

_PLACES = (
    "/usr/bin/nvidia-smi",
    "/usr/local/bin/nvidia-smi",
    "/usr/lib/wsl/lib/nvidia-smi",
    "/run/current-system/sw/bin/nvidia-smi",
)
_OLD = ("pci.bus_id", "uuid", "name", "memory.total", "driver_version", "persistence_mode", "mig.mode.current")
_NEW = (*_OLD, "mig.mode.pending", "compute_cap", "fabric.state", "fabric.status")
_BOARD = ("vbios_version", "inforom.img", "ecc.mode.current", "power.limit")
"""Queried along with `_NEW`; older captures lack them."""
_NONE = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "")


def collect(host: LiveHost, loaded: bool, seconds: float = 15) -> Optional[Dict[str, Any]]:
    """Return {"path", "ok", "why", "gpus"}, None when it is not installed; it is started only if a driver is loaded."""
    path = _place(host)
    if path is None:
        return None
    answer: Dict[str, Any] = {"path": path, "ok": False, "why": None, "gpus": {}}
    if not loaded:
        answer["why"] = "not asked: no NVIDIA kernel module is loaded"
        return answer
    for fields in ((*_NEW, *_BOARD), _OLD):
        argv = [path, "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
        told = host.run("nvidia-smi-old" if fields is _OLD else "nvidia-smi", argv, seconds)
        if told["rc"] == 0:
            answer["gpus"] = dict(item for item in (_gpu(line, fields) for line in told["out"].splitlines()) if item)
            if any(gpu["mig"] for gpu in answer["gpus"].values()):
                for address, slices in mig.collect(host, path, seconds).items():
                    answer["gpus"].get(address, {})["slices"] = slices
            answer["ok"] = bool(answer["gpus"])
            answer["why"] = None if answer["ok"] else "it named no GPU"
            return answer
        answer["why"] = (
            told.get("why")
            or (told["out"].strip() or told["err"].strip() or "it exited with {}".format(told["rc"]))[:400]
        )
        if "not a valid field" not in answer["why"]:
            break
    host.note("gpus.uuid", "nvidia-smi: " + answer["why"])
    return answer


def _place(host: LiveHost) -> Optional[str]:
    return next((place for place in _PLACES if host.exists(place)), None)


def _gpu(line: str, fields: Tuple[Any, ...]) -> Optional[Tuple[str, Dict[str, Any]]]:
    """00000000:00:06.0, GPU-1c5b..., NVIDIA H200, 143771, ... -> ("0000:00:06.0", {...})."""
    values = [value.strip() for value in line.split(",")]
    if len(values) not in (len(fields), len(fields) - len(_BOARD)):
        return None
    told = {field: (None if value in _NONE else value) for field, value in zip(fields, values)}
    bus = told["pci.bus_id"]
    if not bus or bus.count(":") != 2:
        return None
    memory = told["memory.total"]
    power = told.get("power.limit")
    return mig.short_address(bus), {
        "uuid": told["uuid"],
        "reported_name": told["name"],
        "memory_mib": int(memory) if memory and memory.isdigit() else None,
        "driver_version": told["driver_version"],
        "persistence": {"Enabled": True, "Disabled": False}.get(told["persistence_mode"] or ""),
        "mig": told["mig.mode.current"],
        "mig_pending": told.get("mig.mode.pending"),
        "slices": None,
        "reported_capability": told.get("compute_cap"),
        "fabric": {"state": told.get("fabric.state"), "status": told.get("fabric.status")}
        if told.get("fabric.state")
        else None,
        "vbios": told.get("vbios_version"),
        "inforom": told.get("inforom.img"),
        "ecc": {"Enabled": True, "Disabled": False}.get(told.get("ecc.mode.current") or ""),
        "power_limit": _number(power),
    }


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def nvlinks(host: LiveHost, loaded: bool, seconds: float = 15) -> Dict[str, Dict[str, Any]]:
    """Return each GPU's NVLinks by its UUID: how many are up and down, and the slowest rate in GB/s."""
    path = _place(host)
    if path is None or not loaded:
        return {}
    found: Dict[str, Dict[str, Any]] = {}
    links: Dict[str, Any] = {}
    for line in host.run("nvidia-smi-nvlink", [path, "nvlink", "--status"], seconds)["out"].splitlines():
        gpu = re.match(r"GPU \d+: .*\(UUID: (\S+)\)", line)
        link = re.match(r"\s+Link \d+: (?:([\d.]+) GB/s|(<inactive>))", line)
        if gpu:
            links = found.setdefault(gpu.group(1), {"up": 0, "down": 0, "slowest": None})
        elif link and link.group(1):
            rate = float(link.group(1))
            links["up"] += 1
            links["slowest"] = rate if links["slowest"] is None else min(rate, links["slowest"])
        elif link:
            links["down"] += 1
    return found


RECOVERIES = "/var/lib/gpusetup/recoveries.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
_QUESTIONS = {
    "nvidia-smi-recovery": ("gpu_recovery_action",),
    "nvidia-smi-rows": ("remapped_rows.pending", "remapped_rows.failure"),
}
"""Separate queries, because older drivers know only the second."""
_SAID = {"yes": True, "no": False, "1": True, "0": False}


def recovery_asked(host: LiveHost, path: Optional[str], seconds: float = 10) -> Dict[str, Dict[str, Any]]:
    """Return by PCI address the recovery action in nvidia-smi's words, and whether row remaps are pending or failed."""
    found: Dict[str, Dict[str, Any]] = {}
    for label, fields in _QUESTIONS.items() if path else ():
        argv = [str(path), "--query-gpu=" + ",".join(("pci.bus_id", *fields)), "--format=csv,noheader"]
        told = host.run(label, argv, seconds)
        for line in told["out"].splitlines() if told["rc"] == 0 else ():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == len(fields) + 1 and cells[0].count(":") == 2:
                address = mig.short_address(cells[0])
                gpu = found.setdefault(address, {"action": None, "pending": None, "failed": None})
                gpu.update(_of_recovery(fields, cells[1:]))
    return found


def _of_recovery(fields: Any, cells: List[str]) -> Dict[str, Any]:
    if len(fields) == 1:
        return {"action": None if cells[0] in _NONE else cells[0]}
    pending, failed = (_SAID.get(cell.lower()) for cell in cells)
    return {"pending": pending, "failed": failed}


def recoveries(host: LiveHost) -> List[Dict[str, Any]]:
    try:
        kept = json.loads(host.read(RECOVERIES) or "[]")
    except (ValueError, RecursionError):
        return []
    return [item for item in kept if isinstance(item, dict)] if isinstance(kept, list) else []


def resets(host: LiveHost) -> Dict[str, Dict[str, Any]]:
    """Return each GPU's last reset in this boot as {"uptime", "time"}, by PCI address."""
    boot = (host.read(BOOT_ID) or "").strip()
    found: Dict[str, Dict[str, Any]] = {}
    for item in recoveries(host):
        if boot and item.get("boot") == boot and item.get("action") == "reset" and item.get("outcome") == "done":
            for address in item.get("gpus") or ():
                found[str(address)] = {"uptime": item.get("uptime"), "time": item.get("time")}
    return found
