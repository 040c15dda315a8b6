"""The same figures from nvidia-smi, for a host where the library cannot be loaded: slower, and without NVLink."""

from typing import Any, Dict, List, Optional

from ..gpu_probe import commands

__all__ = ["Smi", "SmiError"]

PLACES = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/run/current-system/sw/bin/nvidia-smi")
DEADLINE = 20.0
_FIELDS = (
    "index", "uuid", "pci.bus_id", "name", "driver_version", "utilization.gpu", "utilization.memory", "memory.used",
    "memory.total", "power.draw", "enforced.power.limit", "temperature.gpu", "temperature.memory", "fan.speed",
    "clocks.sm", "clocks.max.sm", "clocks.mem", "clocks_throttle_reasons.active", "mig.mode.current",
)  # fmt: skip
_PROGRAMS = ("gpu_uuid", "pid", "used_memory")
MIB = 1 << 20


class SmiError(Exception):
    """nvidia-smi is missing, failed, or gave no answer."""


class Smi:
    """nvidia-smi, asked twice for each look: for the GPUs, and for the programs on them."""

    def __init__(self) -> None:
        self.doing = ""

    def read(self) -> List[Dict[str, Any]]:
        """Return the GPUs as `gpu_read.reader` tells them, without rates."""
        gpus = [_gpu(line) for line in self._ask("--query-gpu=", _FIELDS)]
        found = {gpu["uuid"]: gpu for gpu in gpus if gpu is not None}
        for uuid, pid, memory in (line for line in self._ask("--query-compute-apps=", _PROGRAMS) if len(line) == 3):
            if uuid in found and pid.isdigit():
                used = _number(memory)
                program = {"pid": int(pid), "kind": "C", "memory": None if used is None else int(used) * MIB}
                found[uuid]["processes"].append(program)
        return list(found.values())

    def _ask(self, question: str, fields: Any) -> List[List[str]]:
        told: Dict[str, Any] = {}
        for place in PLACES:
            self.doing = place
            told = commands.run([place, question + ",".join(fields), "--format=csv,noheader,nounits"], DEADLINE)
            self.doing = ""
            if told.get("why") != "missing":
                break
        if told["rc"] == 0:
            return [[cell.strip() for cell in line.split(",")] for line in told["out"].splitlines() if line.strip()]
        words = told.get("why") or told["out"].strip() or told["err"].strip() or "exit {}".format(told["rc"])
        raise SmiError("nvidia-smi: " + " ".join(str(words).split())[:300])


def _gpu(cells: List[str]) -> Optional[Dict[str, Any]]:
    if len(cells) != len(_FIELDS):
        return None
    told = dict(zip(_FIELDS, cells))
    reasons = told["clocks_throttle_reasons.active"]
    memory = {name: _number(told["memory." + name]) for name in ("used", "total")}
    return {
        "index": int(_number(told["index"]) or 0),
        "uuid": told["uuid"],
        "address": told["pci.bus_id"].lower()[-12:],
        "name": told["name"],
        "driver": told["driver_version"],
        "utilization": _whole(told["utilization.gpu"]),
        "memory_utilization": _whole(told["utilization.memory"]),
        "memory_used": None if memory["used"] is None else int(memory["used"]) * MIB,
        "memory_total": None if memory["total"] is None else int(memory["total"]) * MIB,
        "power": _number(told["power.draw"]),
        "power_limit": _number(told["enforced.power.limit"]),
        "temperature": _whole(told["temperature.gpu"]),
        "memory_temperature": _whole(told["temperature.memory"]),
        "fan": _whole(told["fan.speed"]),
        "clock": _whole(told["clocks.sm"]),
        "clock_limit": _whole(told["clocks.max.sm"]),
        "memory_clock": _whole(told["clocks.mem"]),
        "reasons": int(reasons, 16) if reasons.startswith("0x") else None,
        "mig": {"Enabled": True, "Disabled": False}.get(told["mig.mode.current"]),
        "processes": [],
    }


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None


def _whole(text: str) -> Optional[int]:
    number = _number(text)
    return None if number is None else int(number)
