"""First apply on Debian 12, real driver, against apt-get of the same packages on an identical host."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from datetime import datetime
from pathlib import Path

from tests.lab import fleet, machine
from tests.lab.applying import apply
from tests.lab.host import SSH_OPTIONS, Host, HostSpec
from tests.lab.places import SIMULATED_ROOT, SSH_KEY

BOUND = 1.15


def main() -> int:
    reason = machine.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 0
    machine.prepare()
    names = [f"bench{os.getpid()}-{word}" for word in ("ours", "bare")]
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
            print(done.out, done.err)
            return 1
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
        inside = [dpkg_seconds(host) for host in (ours, bare)]
    finally:
        fleet.down(names)
    ratio = done.seconds / plain
    verdict = "ok" if ratio <= BOUND else "MISSED"
    print(
        f"apply {done.seconds:.0f} s, apt-get of the same {len(exact)} packages {plain:.0f} s: ratio {ratio:.2f} "
        f"(bound {BOUND}, load {os.getloadavg()[0]:.1f}), {done.operations} remote operations with polls: {verdict}"
    )
    print(
        f"of these, from the first package unpacked to the last one configured: {inside[0]:.0f} s and {inside[1]:.0f} s"
    )
    return int(ratio > BOUND)


def dpkg_seconds(host: Host) -> float:
    """Return how long dpkg worked by its own log: a difference here is the machine's own."""
    lines = host.ssh("cat", "/var/log/dpkg.log").stdout.splitlines()
    first, last = (datetime.fromisoformat(" ".join(line.split()[:2])) for line in (lines[0], lines[-1]))
    return (last - first).total_seconds()
