"""Bootstrap on a lab host, from power-on to done without the reboot itself, against apt-get with the same packages.

Two hosts one after the other, both with real systemd, apt and dpkg, and stand-in packages that compile a tiny module.
The packages of a real driver take minutes more on both sides, so the ratio here is an upper bound; the seconds between
are what counts. Needs root. `python -m bench.bootstrap_time --real` installs Debian's own driver packages through the
lab's mirror instead.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace

from tests.lab import machine
from tests.lab.bootstrapping import FINAL, WISH, first_boot, serve_bundle, status, user_data
from tests.lab.host import Host
from tests.lab.plays import packages
from tests.lab.repository import build
from tests.lab.spec import HostSpec

RATIO = 1.25


def main() -> int:
    """Measure both and print the ratio; the bound applies to real packages only."""
    why = "needs root" if os.geteuid() else machine.why_not()
    if why:
        print(f"skipped: {why}")
        return 0
    machine.prepare()
    real = "--real" in sys.argv
    repositories, network = build.ready(), "mirror" if real else "none"
    first_host = HostSpec(
        name=f"bench-{os.getpid()}-own", flavour="debian12-cloud", machine="t4", network=network, disk="real"
    )
    made = [first_host, replace(first_host, name=f"bench-{os.getpid()}-apt")]
    first = Host.create(made[0])
    try:
        before = packages(first)
        whole, reboot, parts = bootstrapped(first, real, repositories)
        wanted = {name: version for name, version in packages(first).items() if before.get(name) != version}
        sources = first.ssh(
            "sh", "-c", "tar -C / -c etc/apt usr/share/keyrings usr/local/share 2>/dev/null | base64"
        ).stdout
    finally:
        first.destroy()
    second = Host.create(made[1])
    try:
        bare = installed(second, sources, wanted)
    finally:
        second.destroy()
    ratio = (whole - reboot) / bare
    print("bootstrap: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items()))
    print(f"{len(wanted)} packages: apt-get {bare:.1f} s; bootstrap {whole:.1f} s, reboot {reboot:.1f} s of them")
    more = whole - reboot - bare
    print(f"bootstrap without reboot / apt-get: {ratio:.2f}, {more:.1f} s more (bound with real packages: {RATIO})")
    return int(real and ratio > RATIO)


def bootstrapped(host: Host, real: bool, repositories: build.Repositories) -> tuple[float, float, dict[str, float]]:
    """Return the seconds from power-on to done, of the reboot, and in each state."""
    wish = ("driver==535.*", *WISH[1:]) if real else WISH  # what Debian 12 has
    source = ["--set", "gpusetup_source=distro"] if real else []
    text = user_data(serve_bundle(), repositories, *source, wish=wish)
    began = last = time.monotonic()
    first_boot(host, text)
    parts: dict[str, float] = {}
    reboot, state, seen = 0.0, "booting", "booting"
    while state not in FINAL:
        time.sleep(0.1)
        state, now = status(host)["state"], time.monotonic()
        name = {"none": "booting"}.get(seen, seen) + (" after the reboot" if reboot else "")
        parts[name] = parts.get(name, 0.0) + now - last
        if seen == "rebooting":
            reboot += now - last
        seen, last = state, now
    if state != "done":
        raise RuntimeError(json.dumps(status(host)))
    host.wait()
    return last - began, reboot, {name: seconds for name, seconds in parts.items() if seconds >= 0.2}


def installed(host: Host, sources: str, wanted: dict[str, str]) -> float:
    """Return the seconds of apt-get update and install, with the same versions from the same sources."""
    host.ssh("sh", "-c", "base64 -d | tar -C / -x", text=sources)
    began = time.monotonic()
    host.ssh("apt-get", "update", "-qq", timeout=600)
    names = [f"{name}={version}" for name, version in wanted.items()]
    host.ssh("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "--allow-change-held-packages",
             "--no-install-recommends", *names, timeout=3600)  # fmt: skip
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
