"""The same figures from nvidia-smi, if the library cannot be loaded: slower, and without PCIe and NVLink rates."""

import re
from typing import Any, Dict, List, Optional, Sequence

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import commands

__all__ = ["Smi", "SmiError"]

PLACES = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/run/current-system/sw/bin/nvidia-smi")
DEADLINE = 20.0
_FIELDS = (
    "index", "uuid", "pci.bus_id", "name", "driver_version", "utilization.gpu", "utilization.memory", "memory.used",
    "memory.total", "power.draw", "enforced.power.limit", "temperature.gpu", "temperature.memory", "fan.speed",
    "clocks.sm", "clocks.max.sm", "clocks.mem", "clocks_event_reasons.active", "mig.mode.current",
)  # fmt: skip
_PROGRAMS = ("gpu_uuid", "pid", "used_memory")
_OLDER = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
"""Field names of older drivers."""
_UNKNOWN = re.compile(r'Field "([^"]+)" is not a valid field')
MIB = 1 << 20
Row = Dict[str, str]


class SmiError(Exception):
    """nvidia-smi is missing, failed, or gave no answer."""


class Smi:
    """Runs nvidia-smi twice per reading: for the GPUs, and for the programs on them."""

    def __init__(self) -> None:
        self.doing = ""
        self._known: Dict[str, List[str]] = {}
        """The fields that this nvidia-smi supports, by query, once it has answered."""

    def read(self) -> List[Dict[str, Any]]:
        """Return the GPUs as `gpu_read.reader` does, without rates."""
        gpus = [_gpu(row) for row in self.rows("--query-gpu=", _FIELDS)]
        found = {gpu["uuid"]: gpu for gpu in gpus}
        for row in self.rows("--query-compute-apps=", _PROGRAMS):
            uuid, pid = row.get("gpu_uuid", ""), row.get("pid", "")
            if uuid in found and pid.isdigit():
                used = number(row.get("used_memory", ""))
                program = {"pid": int(pid), "kind": "C", "memory": None if used is None else int(used) * MIB}
                found[uuid]["processes"].append(program)
        return list(found.values())

    def rows(self, question: str, fields: Sequence[str]) -> List[Row]:
        """Return each line as {requested field: cell}; fields that this version does not support are left out."""
        asked = self._known.get(question) or list(fields)
        while True:
            told = self._told([question + ",".join(asked), "--format=csv,noheader,nounits"])
            if told["rc"] == 0:
                break
            unknown = _UNKNOWN.search(told["out"] + told["err"])
            place = unknown.group(1) if unknown else ""
            if place not in asked:
                words = told.get("why") or told["out"].strip() or told["err"].strip() or "exit {}".format(told["rc"])
                raise SmiError("nvidia-smi: " + " ".join(str(words).split())[:300])
            asked = [older for older in (_OLDER.get(name) if name == place else name for name in asked) if older]
        self._known[question] = asked
        newer = {older: name for name, older in _OLDER.items() if name in fields}
        names = [newer.get(name, name) for name in asked]
        lines = ([cell.strip() for cell in line.split(",")] for line in told["out"].splitlines())
        return [dict(zip(names, cells)) for cells in lines if len(cells) == len(names)]

    def _told(self, arguments: List[str]) -> Dict[str, Any]:
        told: Dict[str, Any] = {}
        for place in PLACES:
            self.doing = place
            told = commands.run([place, *arguments], DEADLINE)
            self.doing = ""
            if told.get("why") != "missing":
                break
        return told


def _gpu(row: Row) -> Dict[str, Any]:
    told = dict(dict.fromkeys(_FIELDS, ""), **row)
    reasons = number(told["clocks_event_reasons.active"])
    memory = {name: number(told["memory." + name]) for name in ("used", "total")}
    return {
        "index": int(number(told["index"]) or 0),
        "uuid": told["uuid"],
        "address": told["pci.bus_id"].lower()[-12:],
        "name": told["name"],
        "driver": told["driver_version"],
        "utilization": _whole(told["utilization.gpu"]),
        "memory_utilization": _whole(told["utilization.memory"]),
        "memory_used": None if memory["used"] is None else int(memory["used"]) * MIB,
        "memory_total": None if memory["total"] is None else int(memory["total"]) * MIB,
        "power": number(told["power.draw"]),
        "power_limit": number(told["enforced.power.limit"]),
        "temperature": _whole(told["temperature.gpu"]),
        "memory_temperature": _whole(told["temperature.memory"]),
        "fan": _whole(told["fan.speed"]),
        "clock": _whole(told["clocks.sm"]),
        "clock_limit": _whole(told["clocks.max.sm"]),
        "memory_clock": _whole(told["clocks.mem"]),
        "reasons": None if reasons is None else int(reasons),
        "mig": {"Enabled": True, "Disabled": False}.get(told["mig.mode.current"]),
        "processes": [],
    }


def number(text: str) -> Optional[float]:
    """Return a number, also one in hexadecimal (0x…); None for anything else, such as [N/A]."""
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:
        return None


def _whole(text: str) -> Optional[int]:
    found = number(text)
    return None if found is None else int(found)
