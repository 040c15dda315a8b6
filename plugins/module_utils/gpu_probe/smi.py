"""What nvidia-smi adds when it works: named fields only (its banner changes), and never for longer than the
deadline.
"""

from typing import Any, Dict, Optional, Tuple

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
_NONE = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "")


def collect(host: LiveHost, loaded: bool, seconds: float = 15) -> Optional[Dict[str, Any]]:
    """Return {"path", "ok", "why", "gpus"}, None when it is not installed; it is only started when a driver is
    loaded.
    """
    path = next((place for place in _PLACES if host.exists(place)), None)
    if path is None:
        return None
    answer: Dict[str, Any] = {"path": path, "ok": False, "why": None, "gpus": {}}
    if not loaded:
        answer["why"] = "not asked: no NVIDIA kernel module is loaded"
        return answer
    for fields in (_NEW, _OLD):
        argv = [path, "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
        told = host.run("nvidia-smi", argv, seconds) if fields is _NEW else host.run("nvidia-smi-old", argv, seconds)
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


def _gpu(line: str, fields: Tuple[Any, ...]) -> Optional[Tuple[str, Dict[str, Any]]]:
    """00000000:00:06.0, GPU-1c5b..., NVIDIA H200, 143771, ... -> ("0000:00:06.0", {...})."""
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(fields):
        return None
    told = {field: (None if value in _NONE else value) for field, value in zip(fields, values)}
    bus = told["pci.bus_id"]
    if not bus or bus.count(":") != 2:
        return None
    domain, rest = bus.split(":", 1)
    memory = told["memory.total"]
    return domain[-4:].lower() + ":" + rest.lower(), {
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
    }
