"""`gpusetup watch` over real SSH: two hosts whose NVIDIA library is a stand-in, one of which hangs midway.

What is real: sshd, keys, host keys, the reader as it arrives and runs as a user without rights, a host that is stopped.
What is not: the library's figures.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab.process import until

TOLD = """\
* count 1
* driver 580.159.04
0 name NVIDIA H200
0 uuid GPU-0
0 utilization 97
0 memory_utilization 40
0 memory_used 107374182400
0 memory_total 150754820096
0 temperature 64
"""


@pytest.fixture(scope="module")
def hosts(lab_hosts_module, nvml):
    made = lab_hosts_module(well={"machine": "t4"}, hangs={"machine": "t4"})
    for host in made:
        shutil.copy(nvml, host.path(f"/usr/lib/{platform.machine()}-linux-gnu/libnvidia-ml.so.1"))
        host.path("/etc/nvml-stand-in").write_text(TOLD)
    return made


class Watching:
    """The command at work; each call of `until` reads documents until one is as wanted."""

    def __init__(self, inventory, *words):
        argv = [sys.executable, "-m", "gpusetup", "watch", str(inventory), "--json", "--every", "1", *words]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def until(self, wanted, seconds=60):
        end = time.monotonic() + seconds
        while True:
            document = json.loads(self.process.stdout.readline())
            if wanted(document["hosts"]):
                return document["hosts"]
            assert time.monotonic() < end, document

    def connections(self, address):
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().decode().split("\0")
            except OSError:
                continue
            if os.path.basename(words[0]) == "ssh" and address in words:
                found.append(words)
        return found

    def end(self):
        self.process.terminate()
        code = self.process.wait(60)
        self.process.stdout.close()
        return code


@pytest.fixture
def watching():
    made = []

    def start(*words):
        made.append(Watching(*words))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.end()


def test_a_host_that_hangs_is_shown_so_and_the_other_goes_on(hosts, lab_inventory, watching):
    well, hangs = hosts
    # A user without rights: nothing that is read needs more.
    watch = watching(lab_inventory(hosts, {"ansible_user": "guest"}))
    seen = watch.until(lambda told: all(host["state"] == "live" for host in told.values()))
    assert {host["gpus"][0]["utilization"] for host in seen.values()} == {97}
    assert {host["source"] for host in seen.values()} == {"nvml"}
    assert [len(watch.connections(host.address)) for host in hosts] == [1, 1], "one connection to each"

    hangs.freeze()
    try:
        seen = watch.until(lambda told: told[hangs.name]["state"] == "silent")
        assert seen[hangs.name]["age"] > 5
        assert seen[hangs.name]["gpus"][0]["temperature"] == 64, "its last figures, with their age"
        before = seen[well.name]["time"]
        seen = watch.until(lambda told: told[hangs.name]["age"] > 12)
        assert (seen[well.name]["state"], seen[well.name]["age"] < 4) == ("live", True)
        assert seen[well.name]["time"] > before
    finally:
        hangs.thaw()
    watch.until(lambda told: told[hangs.name]["state"] == "live" and told[hangs.name]["age"] < 4, 120)
    assert watch.end() == 130
    for host in hosts:
        assert watch.connections(host.address) == []
        reads = ("pgrep", "-u", "guest", "python")
        until(lambda: host.ssh(*reads, check=False).returncode, "the reader ends with its connection", 10)  # noqa: B023


def test_a_host_with_another_key_is_not_believed(hosts, lab_inventory, watching, tmp_path):
    first, _ = hosts
    (tmp_path / "known").write_text(
        f"{first.address} ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPQnVkz5vTbRZZAdMvjCPDCPkqZVnSXPXeuxLfXhTZyY\n"
    )
    options = f"-o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={tmp_path / 'known'} -o GlobalKnownHostsFile=/dev/null"
    watch = watching(lab_inventory([first], {"ansible_ssh_common_args": options}))
    seen = watch.until(lambda told: told[first.name]["state"] == "down")
    assert "key verification failed" in seen[first.name]["reason"]
