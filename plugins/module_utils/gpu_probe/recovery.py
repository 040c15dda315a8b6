"""The recovery that the driver asks for after an error, and the GPUs that gpusetup has reset since the boot."""

import json
from typing import Any, Dict, List, Optional

from .host import LiveHost

RECORD = "/var/lib/gpusetup/recoveries.json"
BOOT = "/proc/sys/kernel/random/boot_id"
_QUESTIONS = {
    "nvidia-smi-recovery": ("gpu_recovery_action",),
    "nvidia-smi-rows": ("remapped_rows.pending", "remapped_rows.failure"),
}
"""Separate queries, because older drivers know only the second."""
_NONE = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "")
_SAID = {"yes": True, "no": False, "1": True, "0": False}


def collect(host: LiveHost, path: Optional[str], seconds: float = 10) -> Dict[str, Dict[str, Any]]:
    """Return by PCI address the recovery action in nvidia-smi's words, and whether row remaps are pending or failed."""
    found: Dict[str, Dict[str, Any]] = {}
    for label, fields in _QUESTIONS.items() if path else ():
        argv = [str(path), "--query-gpu=" + ",".join(("pci.bus_id", *fields)), "--format=csv,noheader"]
        told = host.run(label, argv, seconds)
        for line in told["out"].splitlines() if told["rc"] == 0 else ():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == len(fields) + 1 and cells[0].count(":") == 2:
                domain, rest = cells[0].lower().split(":", 1)
                gpu = found.setdefault(f"{domain[-4:]}:{rest}", {"action": None, "pending": None, "failed": None})
                gpu.update(_read(fields, cells[1:]))
    return found


def _read(fields: Any, cells: List[str]) -> Dict[str, Any]:
    if len(fields) == 1:
        return {"action": None if cells[0] in _NONE else cells[0]}
    pending, failed = (_SAID.get(cell.lower()) for cell in cells)
    return {"pending": pending, "failed": failed}


def read(host: LiveHost) -> List[Dict[str, Any]]:
    """Return the recorded recoveries of this host's GPUs, oldest first."""
    try:
        kept = json.loads(host.read(RECORD) or "[]")
    except ValueError:
        return []
    return [item for item in kept if isinstance(item, dict)] if isinstance(kept, list) else []


def resets(host: LiveHost) -> Dict[str, Dict[str, Any]]:
    """Return each GPU's last reset in this boot as {"uptime", "time"}, by PCI address."""
    boot = (host.read(BOOT) or "").strip()
    found: Dict[str, Dict[str, Any]] = {}
    for item in read(host):
        if boot and item.get("boot") == boot and item.get("action") == "reset" and item.get("outcome") == "done":
            for address in item.get("gpus") or ():
                found[str(address)] = {"uptime": item.get("uptime"), "time": item.get("time")}
    return found
