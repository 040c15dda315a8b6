"""Second apply on converged lab hosts: wall and processor time against a bare ping of them, remote operations."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gpusetup.content import collections_path
from gpusetup.drive.argv import ansible_environment
from tests.lab import fleet, machine
from tests.lab.applying import REPOSITORY, Answer, apply
from tests.lab.host import SSH_COMMON, Host
from tests.lab.places import SIMULATED_ROOT, SSH_KEY
from tests.lab.repository import build
from tests.lab.spec import HostSpec

BOUNDS = {1: 3.0, 10: 10.0, 20: 15.0}
OPERATIONS = {"first": 25, "second": 5}
RUNS = 3


def inventory(folder: Path, hosts: list[Host], repositories: build.Repositories) -> Path:
    """Write the inventory of these hosts."""
    lines = ["[lab]", *(f"{host.name} ansible_host={host.address}" for host in hosts), "[lab:vars]"]
    lines += [
        f"gpusetup_source={repositories.base}",
        f"gpusetup_source_fingerprints={repositories.fingerprint}",
        f"gpusetup_source_key={repositories.base}/lab-key.asc",
        f"gpusetup_components={json.dumps(['driver'])}",
        f"gpusetup_simulated_root={SIMULATED_ROOT}",
        "ansible_user=root",
        "ansible_python_interpreter=/usr/bin/python3",
        f"ansible_ssh_private_key_file={SSH_KEY}",
        f"ansible_ssh_common_args={SSH_COMMON}",
    ]
    path = folder / f"bench{len(hosts)}.ini"
    path.write_text("\n".join(lines) + "\n")
    return path


def operations(answer: Answer, host: Host, events: list[dict[str, Any]]) -> int:
    """Return the number of a host's remote operations, without polls of long steps and reboots."""
    mine = [event for event in events if event.get("host") == host.name]
    polls = sum(1 for event in mine if event["event"] in {"poll", "retry"})
    begun = [event["time"] for event in mine if event["event"] == "begin" and event["name"] == "Reboot"]
    ended = [event["time"] for event in mine if event["event"] in {"ok", "changed"} and event["name"] == "Reboot"]
    calls = [call for call in answer.calls if f"{host.address} " in call.argv + " "]
    waits = sum(1 for call in calls if any(a <= call.time <= b for a, b in zip(begun, ended, strict=False)))
    return len(calls) - polls - waits


def events_of(folder: Path) -> list[dict[str, Any]]:
    """Return the events of the newest run."""
    newest = max(folder.glob("state/runs/*/events.jsonl"), key=lambda path: path.parent.name)
    return [json.loads(line) for line in newest.read_text().splitlines()]


def ping(folder: Path, path: Path, connections: Path) -> None:
    """Run `ansible -m ping` on the same hosts, with the settings that gpusetup gives Ansible."""
    outside = {"PATH": os.environ["PATH"], "HOME": str(folder), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(connections)}
    env = ansible_environment(
        outside, collections=collections_path(), package=REPOSITORY / "gpusetup", events=folder / "ping.jsonl"
    )
    argv = [sys.executable, "-m", "ansible", "adhoc", "-i", str(path), "all", "-m", "ansible.builtin.ping"]
    subprocess.run(argv, env=env | {"ANSIBLE_CALLBACKS_ENABLED": "default"}, check=True, capture_output=True)


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall time of `work` and the CPU time of the processes that it started here."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    work()
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure."""
    reason = machine.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 0
    machine.prepare()
    repositories = build.ready()
    largest = int(os.environ.get("GPUSETUP_BENCH_HOSTS", str(max(BOUNDS))))
    specs = [
        HostSpec(name=f"bench{os.getpid()}-{index}", flavour="ubuntu2404-like", machine="t4", disk="real")
        for index in range(largest)
    ]
    try:
        hosts = fleet.up(specs)
        with tempfile.TemporaryDirectory(prefix="gb-") as folder:
            return int(_measure(Path(folder), hosts, repositories))
    finally:
        fleet.down([spec.name for spec in specs])


def _measure(folder: Path, hosts: list[Host], repositories: build.Repositories) -> bool:
    first = apply(folder, inventory(folder, hosts, repositories), "--verify", "never")
    if first.code:
        print(first.out, first.err)
        return True
    events = events_of(folder)
    counts = [operations(first, host, events) for host in hosts]
    missed = max(counts) > OPERATIONS["first"]
    print(
        f"first apply of {len(hosts)}: {first.seconds:.0f} s, {min(counts)} to {max(counts)} operations per host "
        f"(at most {OPERATIONS['first']}; polls and reboots not counted; {first.operations / len(hosts):.0f} with them)"
    )
    hello, _ = measured(lambda: hosts[0].ssh("true"))
    print(f"ssh true: {hello:.2f} s")
    for number, bound in BOUNDS.items():
        if number <= len(hosts):
            missed |= _second(folder, inventory(folder, hosts[:number], repositories), number, bound)
    return missed


def _keep(runs: list[Answer], work: Callable[[], Answer]) -> None:
    runs.append(work())


def _second(folder: Path, path: Path, number: int, bound: float) -> bool:
    """Measure second applies; each run opens new connections."""
    runs: list[Answer] = []
    walls, processors, pings = [], [], []
    for turn in range(RUNS):
        pings.append(measured(partial(ping, folder, path, folder / f"p{number}-{turn}")))
        again = partial(
            apply, folder, path, "--verify", "never", ANSIBLE_SSH_CONTROL_PATH_DIR=f"{folder}/a{number}-{turn}"
        )
        wall, processor = measured(partial(_keep, runs, again))
        walls.append(wall)
        processors.append(processor)
    wall, processor = statistics.median(walls), statistics.median(processors)
    bare, bare_processor = (statistics.median(column) for column in zip(*pings, strict=True))
    calls = max(run.operations for run in runs) / number
    states = {outcome["state"] for run in runs for outcome in run.hosts.values()}
    touched = any(outcome["actions"] for run in runs for outcome in run.hosts.values())
    good = wall <= bound and calls <= OPERATIONS["second"] and states == {"unchanged"} and not touched
    said = [
        f"{number:>2} host(s): second {wall:.1f} s (bound {bound:g}; load {os.getloadavg()[0]:.1f})",
        f"{wall / bare:.2f} times a bare ping ({bare:.1f} s)",
        f"processor here {processor:.1f} s, {processor / bare_processor:.2f} times the ping's",
        f"{calls:.1f} operations per host",
        ", ".join(sorted(states)),
        "ok" if good else "MISSED",
    ]
    print("; ".join(said))
    return not good
