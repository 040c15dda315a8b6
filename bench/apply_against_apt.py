"""First apply on Debian 12, real driver, against apt-get of the same packages on an identical host."""

from __future__ import annotations

import os
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tests.lab import fleet, machine
from tests.lab.applying import apply
from tests.lab.host import SSH_COMMON, Host
from tests.lab.places import SIMULATED_ROOT, SSH_KEY
from tests.lab.spec import HostSpec

BOUND = 1.15
ROUNDS = 3


def main() -> int:
    reason = machine.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 0
    machine.prepare()
    rounds: list[tuple[Measured, Measured]] = []
    packages: tuple[str, ...] = ()
    for number in range(1, ROUNDS + 1):
        done, bare, packages = one_round(number, packages)
        print(f"round {number}: apply {done}, apt-get of the same {len(packages)} packages {bare}", flush=True)
        rounds.append((done, bare))
    ours, plain = (min(one.seconds for one in side) for side in zip(*rounds, strict=True))
    ratio = ours / plain
    verdict = "ok" if ratio <= BOUND else "MISSED"
    best = f"apply {ours:.0f} s, apt-get {plain:.0f} s, each in its best round"
    print(f"{best}: ratio {ratio:.2f} (bound {BOUND}): {verdict}")
    return int(ratio > BOUND)


class Measured(NamedTuple):
    """One side of a round. The time of dpkg alone varies by a tenth between runs, which shows the noise."""

    seconds: float
    dpkg: float

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s ({self.dpkg:.0f} s of them unpacking and configuring)"


def one_round(number: int, packages: tuple[str, ...]) -> tuple[Measured, Measured, tuple[str, ...]]:
    """Apply to one new host and install the same packages on another; the two alternate in going first."""
    names = [f"bench{os.getpid()}-{number}-{word}" for word in ("ours", "bare")]
    ours, bare = fleet.up(
        [HostSpec(name=name, flavour="debian12-bare", machine="t4", network="mirror", disk="real") for name in names]
    )
    try:
        if number % 2:
            done, packages = applied(ours)
            return done, installed(bare, packages), packages
        plain = installed(bare, packages)
        return applied(ours)[0], plain, packages
    finally:
        fleet.down(names)


def applied(host: Host) -> tuple[Measured, tuple[str, ...]]:
    """Apply; return the times and the installed packages with their versions."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.ini"
        path.write_text(
            f"{host.name} ansible_host={host.address}\n[all:vars]\ngpusetup_source=distro\n"
            'gpusetup_components=["driver"]\n'
            f"gpusetup_reboot=never\ngpusetup_simulated_root={SIMULATED_ROOT}\nansible_user=root\n"
            f"ansible_python_interpreter=/usr/bin/python3\nansible_ssh_private_key_file={SSH_KEY}\n"
            f"ansible_ssh_common_args={SSH_COMMON}\n"
        )
        done = apply(Path(folder), path, "--verify", "never", timeout=3600)
    outcome = done.hosts[host.name]
    if outcome["state"] != "pending-reboot":
        raise SystemExit(f"{done.out}\n{done.err}")
    wanted = {*outcome["packages"]["installed"]}
    versions = host.ssh("dpkg-query", "-W", "-f", "${Package}=${Version}\\n").stdout.split()
    return Measured(done.seconds, dpkg_seconds(host)), tuple(
        item for item in versions if item.partition("=")[0] in wanted
    )


def installed(host: Host, packages: tuple[str, ...]) -> Measured:
    """Install with apt-get alone, its lists fetched before the clock starts."""
    host.ssh("sed", "-i", "s/ main / main contrib non-free /", "/etc/apt/sources.list")
    host.ssh("apt-get", "-q", "update")
    started = time.monotonic()
    install = ("apt-get", "-q", "-y", "--no-install-recommends", "install", *packages)
    host.ssh("env", "DEBIAN_FRONTEND=noninteractive", *install, timeout=3600)
    return Measured(time.monotonic() - started, dpkg_seconds(host))


def dpkg_seconds(host: Host) -> float:
    """Return the time of dpkg by its own log; differences here are noise of the machine."""
    lines = host.ssh("cat", "/var/log/dpkg.log").stdout.splitlines()
    first, last = (datetime.fromisoformat(" ".join(line.split()[:2])) for line in (lines[0], lines[-1]))
    return (last - first).total_seconds()
