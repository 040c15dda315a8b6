"""Observe one machine: read a request (JSON) from stdin, print one JSON document of raw observations. Judge nothing.

    echo '{"level": "smoke", "python": "/opt/gpusetup/bin/python"}' | python3 observe.py .collections

Standard library only, Python 3.6 syntax; code that needs CuPy runs in workers with the interpreter from the request.
"""

import json
import os
import re
import sys
import threading
import time
import types
import xml.etree.ElementTree
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
# The collection's shared code is next to our folder, or where the first argument says.
NEIGHBOURS = sys.argv[1] if __name__ == "__main__" and len(sys.argv) > 1 else os.path.dirname(HERE)
sys.path[:0] = [folder for folder in (HERE, NEIGHBOURS) if folder not in sys.path]
# Without this, collections installed into this Python would be found first: regular packages precede namespace ones.
_ours = types.ModuleType("ansible_collections")
_ours.__path__ = [os.path.join(NEIGHBOURS, "ansible_collections")]
sys.modules.setdefault("ansible_collections", _ours)

import child
import collect
import desktops
import fleet
import frameworks
import measure
import packages
import scratch
import write_bandwidth

if TYPE_CHECKING:
    from measure import GpuEntry

SCHEMA = "gpusetup/observations/2"
LEVELS = ("quick", "smoke", "full", "stress")
PYTHON = "/opt/gpusetup/bin/python"


def gpus_of(smi: Dict[str, Any]) -> "List[GpuEntry]":
    """Return the GPUs with their processes from nvidia-smi's XML; `slices` are still empty."""
    try:
        root = xml.etree.ElementTree.fromstring(smi["stdout"])  # noqa: S314 - nvidia-smi wrote it
    except (xml.etree.ElementTree.ParseError, KeyError, TypeError):
        return []
    found: List[GpuEntry] = []
    for index, node in enumerate(root.findall("gpu")):
        bus = short_bus_id(node.get("id", ""))
        processes = [
            {
                "pid": _text(process, "pid"),
                "name": _text(process, "process_name"),
                "memory": _text(process, "used_memory"),
                "type": _text(process, "type"),
            }
            for process in node.findall("processes/process_info")
        ]
        found.append(
            {
                "index": index,
                "bus_id": bus,
                "uuid": _text(node, "uuid"),
                "mig": _text(node, "mig_mode/current_mig") == "Enabled",
                "memory": _mebibytes(_text(node, "fb_memory_usage/total")),
                "slices": [],
                "processes": [process for process in processes if process["type"] != "G"],
                "utilization": _text(node, "utilization/gpu_util"),
                "compute_mode": _text(node, "compute_mode"),
            }
        )
    return found


def blind(index: int, bus: str) -> "GpuEntry":
    """Return a GPU of which only the bus id is known."""
    return {"index": index, "bus_id": bus, "uuid": None, "mig": False, "slices": [], "processes": [], "blind": True}


def short_bus_id(text: str) -> str:
    """Return a PCI address as the kernel writes it: nvidia-smi gives the domain eight digits."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if re.fullmatch(r"[0-9a-f]{8}", domain) else text.lower()


def mig_slices(listing: Dict[str, Any], gpus: "List[GpuEntry]") -> None:
    """Add the MIG slices listed by `nvidia-smi -L` to their GPUs."""
    current: Optional[GpuEntry] = None
    for line in listing.get("stdout", "").splitlines():
        top = re.match(r"GPU (\d+):", line)
        if top:
            current = next((gpu for gpu in gpus if gpu["index"] == int(top.group(1))), None)
        part = re.search(r"^\s+MIG (\S+).*\(UUID: (MIG-\S+)\)", line)
        if part and current is not None:
            current["slices"].append({"profile": part.group(1), "uuid": part.group(2)})


def _mebibytes(text: Optional[str]) -> Optional[int]:
    found = re.match(r"(\d+) MiB", text or "")
    return int(found.group(1)) if found else None


def _text(node: xml.etree.ElementTree.Element, path: str) -> Optional[str]:
    found = node.find(path)
    return found.text.strip() if found is not None and found.text else None


def interpreter(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return the Python that apply made, or the named one, which must be an absolute path."""
    path = request.get("python") or PYTHON
    found = {"path": None, "error": f"{path} is missing or not executable", "named": bool(request.get("python"))}
    return dict(found, path=path, error=None) if os.path.isabs(path) and os.access(path, os.X_OK) else found


def observe(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return all observations of one level."""
    started = time.monotonic()
    level = request.get("level", "smoke")
    depth = LEVELS.index(level)
    document: Dict[str, Any] = {"schema": SCHEMA, "level": level, "started": time.time(), "sections": {}}
    document.update({"only": request["gpus"]} if request.get("gpus") else {})
    if request.get("simulated_root"):  # a folder stands in for the machine's hardware, so there is no GPU to run on
        captured = collect.gpus_of_capture(request["simulated_root"])
        document.update({"simulated": True, "gpus": [], "facts": {"gpus": captured}, "quick": {}})
        return dict(document, seconds=round(time.monotonic() - started, 3))
    collection = collect.Collection()
    with scratch.folder() as folder:
        smi = collection.wait("smi") or {}
        gpus = gpus_of(smi)
        if any(gpu["mig"] for gpu in gpus):
            mig_slices(collection.wait("smi_list") or {}, gpus)
        document["gpus"] = gpus
        # Without an answer from nvidia-smi, the driver's own list still shows where CUDA should find GPUs.
        if not gpus and depth > 0:
            gpus = [blind(index, bus) for index, bus in enumerate(sorted(collection.wait("proc_gpus") or {}))]
        if depth > 0 and request.get("when_idle") and in_use(gpus):
            document.update({"level": "quick", "left_alone": in_use(gpus)})
            depth = 0
        if depth > 0 and gpus:
            python = interpreter(request)
            document["sections"]["interpreter"] = python
            team = measure.Team(python["path"] or "", gpus, folder, request)
            try:
                if request.get("hosts") and team.python:
                    document["sections"]["workers"] = team.start(("hello", "open"))
                    document["sections"]["hosts"] = fleet.measure(team, request["hosts"])
                elif request.get("budget"):
                    found = within(
                        request["budget"] - (time.monotonic() - started), on_the_gpus, team, depth, collection
                    )
                    if found is None:
                        over = "the budget of {:g} s was over".format(request["budget"])
                        document.update({"level": "quick", "left_alone": [over], "sections": {}})
                    else:
                        document["sections"].update(found)
                else:
                    document["sections"].update(on_the_gpus(team, depth, collection))
            finally:
                team.close()
        if LEVELS.index(document["level"]) > 1:
            look_again(document["gpus"])
        quick = collection.finish()
        facts = quick.pop("facts", None) or {"error": "it did not answer in time"}
        if LEVELS.index(document["level"]) > 1 and gpus and not (request.get("hosts") or request.get("budget")):
            written = attempt(write_bandwidth.measure, facts)
            document["sections"].update({"rdma": written} if written else {})
        document.update({"facts": facts, "quick": quick, "collector_seconds": collection.seconds})
    document["seconds"] = round(time.monotonic() - started, 3)
    return document


def look_again(gpus: "List[GpuEntry]") -> None:
    """Add the processes that compute now, since our workers have ended: they may have disturbed the measurement."""
    smi = collect.Collection(("smi",)).finish().get("smi") or {}
    now = {gpu["uuid"]: gpu["processes"] for gpu in gpus_of(smi)}
    for gpu in gpus:
        gpu["joined"] = now.get(gpu["uuid"], [])


def in_use(gpus: "List[GpuEntry]") -> List[str]:
    """Return which GPUs are in use, by processes on them or, if those are not visible, by their utilisation."""
    found = []
    for gpu in gpus:
        names = ["{} ({})".format(item.get("name"), item.get("pid")) for item in gpu["processes"][:3]]
        busy = re.match(r"(\d+)", gpu.get("utilization") or "")
        if gpu.get("blind"):
            found.append("GPU {}: nvidia-smi does not answer, so it may be in use".format(gpu["index"]))
        elif names:
            found.append("GPU {}: {}".format(gpu["index"], ", ".join(names)))
        elif busy and int(busy.group(1)) > 0:
            found.append("GPU {}: {} % busy".format(gpu["index"], busy.group(1)))
    return found


def within(seconds: float, work: Callable[..., Dict[str, Any]], *arguments: Any) -> Optional[Dict[str, Any]]:
    """Return the result of the work; None when it took too long: its children die with this process."""
    found: List[Dict[str, Any]] = []
    failures: List[Exception] = []

    def run() -> None:
        try:
            found.append(work(*arguments))
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.daemon = True
    thread.start()
    thread.join(max(0.0, seconds))
    for failure in failures:
        raise failure
    return found[0] if found else None


def attempt(work: Callable[..., Dict[str, Any]], *arguments: Any) -> Dict[str, Any]:
    """Return the result of a part, or its failure, which must not cost the others."""
    try:
        return work(*arguments)
    except Exception as failure:
        return {"error": "failed", "message": f"{type(failure).__name__}: {failure}"}


def on_the_gpus(team: measure.Team, depth: int, collection: collect.Collection) -> Dict[str, Any]:
    """Run everything above `quick`; the frameworks' processes have ended before anything is measured."""
    found: Dict[str, Any] = {}
    work = frameworks.start(team.python, team.request, team.scratch, collection)
    above = packages.Packages(team.python, team.request, team.scratch, team.members)
    above.start()
    drawn = attempt(desktops.look, collection.wait("facts") or {})
    if drawn:
        found["desktops"] = drawn
    if team.python:
        found["workers"] = team.start()
    found.update(work.finish())
    if above.smokes:
        found["packages"] = above.finish()
    if depth > 1 and team.python:
        found.update(team.full(collection))
    if depth > 2 and team.python:
        found["stress"] = team.stress()
    return found


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.read() or "{}")
    if request.get("parent"):
        child.die_with_parent(request["parent"])  # even if the caller is killed, no measurement goes on
    document = observe(request)
    answers.write(json.dumps(document))
    answers.write("\n")
    answers.flush()
    os._exit(0)  # do not wait for threads whose program is stuck in the driver


if __name__ == "__main__":
    main()
