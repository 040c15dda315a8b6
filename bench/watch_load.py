# ruff: noqa: E501 - a look as it is told
"""What watching costs the controller: simulated hosts of eight GPUs each tell a line a second, and the view is drawn.

The programs that stand in for SSH are not counted: they are ssh's own work on a real fleet.
"""

from __future__ import annotations

import json
import os
import resource
import time
from contextlib import closing

from bench.found import Found, Row
from gpusetup_fleet.ssh import Route
from gpusetup_fleet.watch.fleet import Fleet
from gpusetup_fleet.watch.view import View

_GPU = {
    "uuid": "GPU-28c5c7ad-1705-b2a6-588b-e026c193a479", "address": "0000:18:00.0", "name": "NVIDIA H200", "utilization": 97,
    "memory_utilization": 40, "memory_used": 107374182400, "memory_total": 150754820096, "power": 612.0, "power_limit": 700.0,
    "temperature": 64, "memory_temperature": 71, "fan": None, "clock": 1755, "clock_limit": 1980, "memory_clock": 3201,
    "throttle": ["sw_power_cap"], "pcie_tx": 1e9, "pcie_rx": 2e9, "nvlink_tx": 1e11, "nvlink_rx": 1e11, "mig": False,
    "processes": [{"pid": 4711, "kind": "C", "memory": 85899345920, "utilization": 90, "user": "anna", "command": "python train.py", "container": None}],
}  # fmt: skip
BOUND = 5.0
"""Percent of a core per host."""
_AGENT = """
read -r program
while :; do
  printf '%s\\n' "$0"
  sleep 1
done
"""


def measured(hosts: int, seconds: float) -> dict[str, float]:
    """Return the controller's share of a core for this many hosts, in all and per host."""
    line = json.dumps({"watch": 1, "time": time.time(), "source": "nvml", "driver": "580.159.04", "gpus": [{"index": index, **_GPU} for index in range(8)]})  # fmt: skip
    routes = [Route(f"gpu-{number:03}", ("/bin/sh", "-c", _AGENT, line)) for number in range(hosts)]
    view, looks = View(), 0
    with closing(Fleet(routes, 1.0, dict(os.environ), at_once=hosts)) as fleet:
        while any(link.looks < 2 for link in fleet.links):
            fleet.turn(0.2)
        before, begun = _used(), time.monotonic()
        drawn = begun
        counted = sum(link.looks for link in fleet.links)
        while (now := time.monotonic()) - begun < seconds:
            fleet.turn(0.25)
            if now - drawn >= 0.25:
                view.lines(fleet.links, 200, 60, "12:00:00")
                drawn = now
        used, took = _used() - before, time.monotonic() - begun
        looks = sum(link.looks for link in fleet.links) - counted
    return {
        "hosts": hosts,
        "looks a second": round(looks / took, 1),
        "percent of a core": round(100 * used / took, 2),
        "percent of a core for each host": round(100 * used / took / hosts, 3),
        "bytes a look": len(line),
        "MiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _used() -> float:
    times = resource.getrusage(resource.RUSAGE_SELF)
    return times.ru_utime + times.ru_stime


def main() -> Found:
    """Measure with 20 and with 200 hosts."""
    rows = []
    for hosts in (20, 200):
        found = measured(hosts, 15.0)
        print(json.dumps(found))
        share, each = found["percent of a core"], found["percent of a core for each host"]
        rows.append(Row(what=f"{hosts} hosts, in all", value=share, unit="% of a core"))
        rows.append(Row(what=f"{hosts} hosts, each", value=each, unit="% of a core a host", bound=BOUND))
    rows.append(Row(what=f"memory with {hosts} hosts", value=found["MiB"], unit="MiB"))
    return Found(rows=tuple(rows))
