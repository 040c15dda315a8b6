"""Second apply on converged lab hosts: wall time and remote operations."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from pathlib import Path

from tests.lab import fleet, machine
from tests.lab.applying import apply
from tests.lab.host import SSH_OPTIONS, HostSpec
from tests.lab.places import SIMULATED_ROOT, SSH_KEY
from tests.lab.repository import build

BOUNDS = {1: 3.0, 10: 10.0}
OPERATIONS = {"first": 25, "second": 5}


def inventory(folder: Path, hosts: list, repositories: build.Repositories) -> Path:
    options = " ".join(word for word in SSH_OPTIONS if word != "LogLevel=ERROR").removesuffix(" -o")
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
        f"ansible_ssh_common_args={options}",
    ]
    path = folder / "bench.ini"
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> int:
    reason = machine.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 0
    machine.prepare()
    repositories = build.ready()
    missed = 0
    for number, bound in BOUNDS.items():
        specs = [
            HostSpec(name=f"bench{os.getpid()}-{index}", flavour="ubuntu2404-like", machine="t4")
            for index in range(number)
        ]
        hosts = fleet.up(specs)
        try:
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                path = inventory(place, hosts, repositories)
                first = apply(place, path, "--verify", "never")
                if first.code:
                    print(first.out, first.err)
                    return 1
                runs = [apply(place, path, "--verify", "never") for _ in range(3)]
        finally:
            fleet.down([spec.name for spec in specs])
        wall = statistics.median(run.seconds for run in runs)
        once, again = first.operations / number, max(run.operations for run in runs) / number
        changed = sum(outcome["changed"] for run in runs for outcome in run.hosts.values())
        good = wall <= bound and once <= OPERATIONS["first"] and again <= OPERATIONS["second"] and changed == 0
        missed |= not good
        load = os.getloadavg()[0]
        print(
            f"{number:>2} host(s): first {first.seconds:.1f} s, {once:.0f} operations each (with polls and reboot); "
            f"second {wall:.1f} s (bound {bound:g}, load {load:.1f}), {again:.1f} operations, changed {changed}: "
            + ("ok" if good else "MISSED")
        )
    return int(missed)
