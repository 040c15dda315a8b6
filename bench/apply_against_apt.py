"""First apply on Debian 12, real driver, against apt-get of the same packages on an identical host."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tests.lab import fleet, machine
from tests.lab.applying import apply
from tests.lab.host import SSH_OPTIONS, Host, HostSpec
from tests.lab.places import SIMULATED_ROOT, SSH_KEY

BOUND = 1.15
ROUNDS = 2


def main() -> int:
    reason = machine.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 0
    machine.prepare()
    rounds = []
    for number in range(1, ROUNDS + 1):
        done, bare = one_round(number)
        print(f"round {number}: apply {done}, apt-get of the same {bare.packages} packages {bare}", flush=True)
        rounds.append((done, bare))
    ours, plain = (min(one.seconds for one in side) for side in zip(*rounds, strict=True))
    ratio = ours / plain
    verdict = "ok" if ratio <= BOUND else "MISSED"
    print(
        f"apply {ours:.0f} s, apt-get {plain:.0f} s, each in its better round: "
        f"ratio {ratio:.2f} (bound {BOUND}): {verdict}"
    )
    return int(ratio > BOUND)


class Measured(NamedTuple):
    """One side of a round. What dpkg itself took differs by a tenth from run to run: so noisy is the machine."""

    seconds: float
    dpkg: float
    packages: int

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s ({self.dpkg:.0f} s of them unpacking and configuring)"


def one_round(number: int) -> tuple[Measured, Measured]:
    """Apply to one fresh host, then install on another what came to the first."""
    names = [f"bench{os.getpid()}-{number}-{word}" for word in ("ours", "bare")]
    ours, bare = fleet.up(
        [HostSpec(name=name, flavour="debian12-bare", machine="t4", network="mirror") for name in names]
    )
    options = " ".join(word for word in SSH_OPTIONS if word != "LogLevel=ERROR").removesuffix(" -o")
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.ini"
            path.write_text(
                f"{ours.name} ansible_host={ours.address}\n[all:vars]\ngpusetup_source=distro\n"
                'gpusetup_components=["driver"]\n'
                f"gpusetup_reboot=never\ngpusetup_simulated_root={SIMULATED_ROOT}\nansible_user=root\n"
                f"ansible_python_interpreter=/usr/bin/python3\nansible_ssh_private_key_file={SSH_KEY}\n"
                f"ansible_ssh_common_args={options}\n"
            )
            done = apply(Path(folder), path, "--verify", "never", timeout=3600)
        outcome = done.hosts[ours.name]
        if outcome["state"] != "pending-reboot":
            raise SystemExit(f"{done.out}\n{done.err}")
        wanted = sorted({*outcome["packages"]["installed"]})
        versions = ours.ssh("dpkg-query", "-W", "-f", "${Package}=${Version}\\n").stdout.split()
        exact = [item for item in versions if item.partition("=")[0] in wanted]
        # The same sources: what is compared is the way, not the place.
        for source in ours.path("/etc/apt/sources.list.d").glob("gpusetup-*"):
            shutil.copy(source, bare.path("/etc/apt/sources.list.d"))
        bare.ssh("apt-get", "-q", "update")
        started = time.monotonic()
        install = ("apt-get", "-q", "-y", "--no-install-recommends", "install", *exact)
        bare.ssh("env", "DEBIAN_FRONTEND=noninteractive", *install, timeout=3600)
        plain = time.monotonic() - started
        sides = [
            Measured(seconds, dpkg_seconds(host), len(exact)) for seconds, host in ((done.seconds, ours), (plain, bare))
        ]
    finally:
        fleet.down(names)
    return sides[0], sides[1]


def dpkg_seconds(host: Host) -> float:
    """Return how long dpkg worked by its own log: a difference here is the machine's own."""
    lines = host.ssh("cat", "/var/log/dpkg.log").stdout.splitlines()
    first, last = (datetime.fromisoformat(" ".join(line.split()[:2])) for line in (lines[0], lines[-1]))
    return (last - first).total_seconds()
