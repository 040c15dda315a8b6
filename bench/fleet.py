"""What a fleet costs the controller: simulated hosts, against a bare ping of the same ones; a model for 10,000.

ssh (no network, no cryptography) and the hosts (answers from files instead of modules) are simulated, see
`tests/simulated_fleet.py`. Ansible, its payloads and gpusetup are real. The bounds are on CPU time, which is valid on a
busy machine too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from bench.found import Found, Row
from gpusetup.content import collections_path
from gpusetup.drive.argv import ansible_environment
from tests.simulated_fleet import SimulatedFleet

REPOSITORY = Path(__file__).resolve().parents[1]
HOSTS = (100, 300, 1000)
"""GPUSETUP_BENCH_HOSTS=100,3000 sets other numbers, GPUSETUP_BENCH_RUNS=facts,second selects runs."""
KINDS = ("ubuntu24.04-h200-keep",)
BOUNDS = {"facts": 1.5, "second": 1.5}
"""Multiples of the CPU time of a bare ping, which is one operation per host too."""
MEMORY = 1 << 30
"""Bytes, of all of the controller's processes."""


class Measured:
    """CPU time, wall time and memory of a command with all its children."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        before, started = os.times(), time.monotonic()
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(argv, env=environment, stdout=said, stderr=said)
            self.memory = 0
            watcher = threading.Thread(target=self._watch, args=(process,))
            watcher.start()
            self.code = process.wait()
            watcher.join()
            said.seek(0)
            self.lines = len(said.read().splitlines())
        after = os.times()
        self.wall = time.monotonic() - started
        self.processor = after.children_user - before.children_user + after.children_system - before.children_system

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Record the largest memory of the process and its children; shared pages count once."""
        while process.poll() is None:
            self.memory = max(self.memory, sum(_share(pid) for pid in _family(process.pid)))
            time.sleep(2.0)


def _share(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _family(root: int) -> list[int]:
    found = [root]
    for pid in found:
        with suppress(OSError):
            for task in Path("/proc").glob(f"{pid}/task/*/children"):
                found += [int(child) for child in task.read_text().split()]
    return found


def commands(fleet: SimulatedFleet) -> dict[str, list[str]]:
    """Return the commands to measure, by name, in order.

    `second` knows from the facts alone that no host needs a change, as most second runs do; `in place` also has to ask
    the hosts' repositories.
    """
    gpusetup, inventory = [sys.executable, "-m", "gpusetup"], str(fleet.inventory)
    return {
        "ping": [sys.executable, "-m", "ansible", "adhoc", "-i", inventory, "all", "-m", "ansible.builtin.ping"],
        "facts": [*gpusetup, "facts", inventory, "--format", "json"],
        "verify": [*gpusetup, "verify", inventory],
        "first": [*gpusetup, "apply", inventory, "--verify", "never"],
        "second": [*gpusetup, "apply", inventory, "--verify", "never", "-e", '{"gpusetup_components": ["driver"]}'],
        "in place": [*gpusetup, "apply", inventory, "--verify", "never"],
        "one in 50 fails": [*gpusetup, "apply", inventory, "--verify", "never"],
    }


def measure(folder: Path, number: int) -> dict[str, Measured]:
    """Run all commands over `number` hosts."""
    fleet = SimulatedFleet(folder / f"fleet-{number}", number, kinds=KINDS)
    state = folder / f"state-{number}"
    environment = dict(os.environ) | {"GPUSETUP_STATE": str(state), "HOME": str(folder)}
    plain = ansible_environment(
        environment, collections=collections_path(), package=REPOSITORY / "gpusetup", events=folder / "ping.jsonl"
    ) | {"ANSIBLE_CALLBACKS_ENABLED": "default"}
    found = {}
    chosen = os.environ.get("GPUSETUP_BENCH_RUNS", "").split(",")
    for name, argv in commands(fleet).items():
        if name not in ("ping", *BOUNDS) and any(chosen) and name not in chosen:
            continue
        fleet.answer("gpu_state", {"converged": name != "first", "gpu_result": {"state": "done"}})
        if name.startswith("one in"):
            fleet.break_every(50)
        done = found[name] = Measured(argv, plain if name == "ping" else environment)
        said = (
            f"{number:>6} {name:<16} {done.processor:7.1f} s processor, {1000 * done.processor / number:5.0f} ms a host"
        )
        said += f", {done.processor / found['ping'].processor:5.2f} pings"
        said += f", {done.wall:6.1f} s (load {os.getloadavg()[0]:.0f})"
        said += f", {done.memory >> 20:5} MiB, {done.lines} lines"
        if name != "ping":
            run = max((state / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
            size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
            events = len((run / "events.jsonl").read_bytes().splitlines())
            said += f", {events / done.wall:.0f} events/s, run folder {size >> 10} KiB"
            shutil.rmtree(run)
        print(said, flush=True)
    return found


def main() -> Found:
    """Measure."""
    chosen = [int(word) for word in os.environ.get("GPUSETUP_BENCH_HOSTS", "").split(",") if word] or list(HOSTS)
    results: dict[int, dict[str, Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="gb-") as folder:
        for number in chosen:
            results[number] = measure(Path(folder), number)
    rows = []
    for number, found in results.items():
        ping = 1000 * found["ping"].processor / number
        for name, done in found.items():
            if name == "ping":
                continue
            bound = BOUNDS.get(name) if number == max(results) else None
            what, each = f"{name} of {number:,} hosts", 1000 * done.processor / number
            rows.append(Row(what=what, value=each, unit="ms a host", plain=ping, bound=bound, of="ratio"))
    most = max(done.memory for done in results[max(results)].values()) / 2**20
    rows.append(Row(what=f"memory with {max(results):,} hosts", value=most, unit="MiB", bound=MEMORY / 2**20))
    print(json.dumps(model(results)))
    return Found(plain="a bare ping", rows=tuple(rows))


def model(results: dict[int, dict[str, Measured]], hosts: int = 10_000) -> dict[str, float]:
    """Return the estimated CPU seconds for `hosts` hosts, by a line through the two largest measurements."""
    sizes = sorted(results)[-2:]
    if len(sizes) < 2:
        return {}
    few, many = sizes
    told: dict[str, float] = {}
    for name in results[few]:
        a, b = results[few][name].processor, results[many][name].processor
        told[name] = round(a + (b - a) / (many - few) * (hosts - few))
    return told
