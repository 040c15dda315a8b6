"""The lab itself: its hosts reach nothing outside, and leave nothing behind."""

import time
from pathlib import Path

from tests.lab import network
from tests.lab.host import Host
from tests.lab.places import HOSTS, KNOWN_HOSTS
from tests.lab.process import run
from tests.lab.spec import HostSpec


def test_a_hermetic_host_reaches_nothing_outside(lab_hosts):
    (host,) = lab_hosts(flavour="debian12", machine="t4")
    fetched = host.ssh("python3", "-c", PROXY_TRY, network.GATEWAY, str(network.PROXY_PORT), check=False)
    assert "403" in fetched.stdout, fetched
    assert host.ssh("ip", "route", "show", "default").stdout == ""


PROXY_TRY = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as s:
    s.sendall(b"GET http://example.com/ HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n")
    print(s.recv(100).decode())
"""


def test_down_leaves_nothing(lab_machine):
    host = Host.create(
        HostSpec(name=f"leaves-{time.monotonic_ns() % 100000}", machine="t4", disks={"/": 700, "/boot": 64})
    )
    host.ssh("true")
    folder, link = host.folder, Path(f"/sys/class/net/{network.outer_link(host.address)}")
    assert link.exists()
    host.destroy()
    assert not folder.exists()
    assert not link.exists()
    assert not Path(f"/run/netns/{network.namespace(host.name)}").exists()
    assert str(folder) not in Path("/proc/self/mounts").read_text()
    assert host.address not in KNOWN_HOSTS.read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/gpusetup-lab/{host.name}"))
    assert run(["pgrep", "-f", "--", f"--machine={host.name}( |$)"], check=False).returncode == 1
    if not any(HOSTS.glob("*/host.json")):
        assert not Path(f"/sys/class/net/{network.BRIDGE}").exists()
