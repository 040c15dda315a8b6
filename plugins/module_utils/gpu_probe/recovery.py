"""What the driver itself asks for after an error, and which GPUs gpusetup has reset since the boot."""

import json
from typing import Any, Dict, List, Optional

from .host import LiveHost

RECORD = "/var/lib/gpusetup/recoveries.json"
BOOT = "/proc/sys/kernel/random/boot_id"
_QUESTIONS = {
    "nvidia-smi-recovery": ("gpu_recovery_action",),
    "nvidia-smi-rows": ("remapped_rows.pending", "remapped_rows.failure"),
}
"""Asked one by one: older drivers know the second only."""
_NONE = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "")
_SAID = {"yes": True, "no": False, "1": True, "0": False}


def collect(host: LiveHost, path: Optional[str], seconds: float = 10) -> Dict[str, Dict[str, Any]]:
    """Return by PCI address the recovery action in nvidia-smi's word, and whether memory rows wait or failed."""
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
    """Return what was done on this host to recover its GPUs, oldest first."""
    try:
        kept = json.loads(host.read(RECORD) or "[]")
    except ValueError:
        return []
    return [item for item in kept if isinstance(item, dict)] if isinstance(kept, list) else []


def resets(host: LiveHost) -> Dict[str, Dict[str, Any]]:
    """Return when each GPU was reset last in this boot, by the uptime and by the clock."""
    boot = (host.read(BOOT) or "").strip()
    found: Dict[str, Dict[str, Any]] = {}
    for item in read(host):
        if boot and item.get("boot") == boot and item.get("action") == "reset" and item.get("outcome") == "done":
            for address in item.get("gpus") or ():
                found[str(address)] = {"uptime": item.get("uptime"), "time": item.get("time")}
    return found
