"""Read the MIG layouts of GPUs from nvidia-smi."""

import re
from typing import Any, Callable, Dict, List, Optional, Sequence

Run = Callable[[List[str]], Dict[str, Any]]
"""Runs nvidia-smi with these arguments and returns {"rc", "out", "err"}."""

_FIELDS = "index,pci.bus_id,uuid,mig.mode.current,mig.mode.pending"
_MODES = {"Enabled": True, "Disabled": False}
_PROFILE = re.compile(r"^\|\s+(\d+)\s+MIG (\S+)\s+(\d+)\s+(\d+)/(\d+)\s")
_PLACES = re.compile(r"^GPU\s+(\d+) Profile ID\s+(\d+) Placements? ?: ?\{([\d,]*)\}:(\d+)", re.MULTILINE)
_INSTANCE = re.compile(r"^\|\s+(\d+)\s+MIG (\S+)\s+(\d+)\s+(\d+)\s+(\d+):(\d+)\s+\|")
_COMPUTE = re.compile(r"^\|\s+(\d+)\s+(\d+)\s+MIG (\S+)\s+(\d+)\*?\s+(\d+)\s")
_DEVICE = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-\S+)\)")


def look(run: Run) -> Optional[List[Dict[str, Any]]]:
    """Return every GPU's mode, instances and devices; None when nvidia-smi does not answer.

    `instances` is None if they could not be read: that needs root.
    """
    told = run(["--query-gpu=" + _FIELDS, "--format=csv,noheader"])
    if told["rc"] != 0:
        return None
    gpus = []
    for line in told["out"].splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5 and cells[0].isdigit():
            gpus.append(
                {
                    "index": int(cells[0]),
                    "address": short_address(cells[1]),
                    "uuid": cells[2],
                    "enabled": _MODES.get(cells[3]),
                    "pending": _MODES.get(cells[4]),
                    "instances": [],
                    "devices": [],
                }
            )
    if any(gpu["enabled"] for gpu in gpus):
        _add_instances(gpus, run)
    return gpus


def _add_instances(gpus: List[Dict[str, Any]], run: Run) -> None:
    by_index = {gpu["index"]: gpu for gpu in gpus}
    outer, inner = run(["mig", "-lgi"]), run(["mig", "-lci"])
    if "ermission" in outer["out"] + outer["err"] or outer["rc"] is None:
        for gpu in gpus:
            gpu["instances"] = None
    else:
        for found in map(_INSTANCE.match, outer["out"].splitlines()):
            if found and int(found.group(1)) in by_index:
                by_index[int(found.group(1))]["instances"].append(
                    {
                        "id": int(found.group(4)),
                        "profile": found.group(2),
                        "start": int(found.group(5)),
                        "size": int(found.group(6)),
                        "compute": [],
                    }
                )
        for found in map(_COMPUTE.match, inner["out"].splitlines()):
            mine = by_index.get(int(found.group(1)), {}).get("instances") or [] if found else []
            for instance in mine:
                if found and instance["id"] == int(found.group(2)):
                    instance["compute"].append(found.group(3))
    current: Optional[Dict[str, Any]] = None
    for line in run(["-L"])["out"].splitlines():
        top, part = re.match(r"GPU (\d+):", line), _DEVICE.match(line)
        if top:
            current = by_index.get(int(top.group(1)))
        elif part and current is not None:
            current["devices"].append({"profile": part.group(1), "uuid": part.group(2)})
    for gpu in gpus:
        gpu["instances"] = gpu["instances"] and sorted(gpu["instances"], key=lambda item: item["start"])


def profiles(run: Run, address: str) -> Optional[List[Dict[str, Any]]]:
    """Return a GPU's profiles with their maximum counts and start slices; None when unknown.

    Older drivers list them only while MIG is on.
    """
    return next(iter(tables(run, ["-i", address]).values()), None)


def tables(run: Run, which: Sequence[str] = ()) -> Dict[int, List[Dict[str, Any]]]:
    table, places = run(["mig", *which, "-lgip"]), run(["mig", *which, "-lgipp"])
    where = {(int(found[0]), int(found[1])): found for found in _PLACES.findall(places["out"])}
    found_by: Dict[int, List[Dict[str, Any]]] = {}
    for found in map(_PROFILE.match, table["out"].splitlines()):
        if found and (int(found.group(1)), int(found.group(3))) in where:
            starts, size = where[int(found.group(1)), int(found.group(3))][2:]
            found_by.setdefault(int(found.group(1)), []).append(
                {
                    "name": found.group(2),
                    "id": int(found.group(3)),
                    "total": int(found.group(5)),
                    "starts": [int(start) for start in starts.split(",") if start],
                    "size": int(size),
                }
            )
    return found_by


def compute_profiles(run: Run, address: str, instance: int) -> Dict[str, int]:
    text = run(["mig", "-i", address, "-gi", str(instance), "-lcip"])["out"]
    row = re.compile(r"^\|\s+\d+\s+\d+\s+MIG (\S+)\s+(\d+)\*?\s", re.MULTILINE)
    return {name: int(number) for name, number in row.findall(text)}


def short_address(bus_id: str) -> str:
    """Return a PCI address as the kernel writes it: nvidia-smi gives the domain eight digits."""
    domain, _colon, rest = bus_id.lower().partition(":")
    return domain[-4:] + ":" + rest


def collect(host: Any, path: str, seconds: float = 15) -> Dict[str, Dict[str, Any]]:
    """Return by PCI address the MIG instances, devices and profiles of each GPU that supports MIG."""

    def run(arguments: List[str]) -> Dict[str, Any]:
        label = "nvidia-smi-mig " + " ".join(arguments)
        answer: Dict[str, Any] = host.run(label, [path, *arguments], seconds)
        return answer

    gpus = [gpu for gpu in look(run) or () if gpu["enabled"] is not None]
    known = tables(run) if gpus else {}
    found = {}
    for gpu in gpus:
        rows = known.get(gpu["index"], [])
        instances = gpu["instances"]
        found[gpu["address"]] = {
            "instances": instances
            and [{key: item[key] for key in ("profile", "start", "compute")} for item in instances],
            "devices": gpu["devices"],
            "profiles": [{key: row[key] for key in ("name", "total", "starts", "size")} for row in rows],
        }
    return found
