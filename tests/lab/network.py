"""One bridge for all lab hosts; each host has its own network namespace and address on it. No route leads outside."""

import contextlib
import os
import signal
import sys
import time
from ipaddress import IPv4Address
from pathlib import Path
from subprocess import DEVNULL, Popen

from tests.lab.places import CHECKOUT, HOSTS, STATE, LabError, locked
from tests.lab.process import run, until

BRIDGE = "gpulab0"
GATEWAY = "10.77.0.1"
PREFIX = 16
PROXY_PORT, REPOSITORY_PORT = 3128, 8077
PROXY = f"http://{GATEWAY}:{PROXY_PORT}"
REPOSITORY_URL = f"http://{GATEWAY}:{REPOSITORY_PORT}"
MIRROR_CLIENTS = STATE / "mirror-clients"  # one file per address that may use the proxy
INOTIFY_LIMIT, INOTIFY_WANTED = Path("/proc/sys/fs/inotify/max_user_instances"), 4096

# Addresses below are for the inventories in the repository, those from here on for tests.
FIRST_FREE = int(IPv4Address("10.77.1.1"))
LAST_FREE = int(IPv4Address("10.77.250.250"))


def namespace(name: str) -> str:
    return f"gpulab-{name}"


def outer_link(address: str) -> str:
    """The bridge's end of a host's cable; link names have at most 15 characters, so it is made of the address."""
    third, fourth = address.split(".")[2:]
    return f"gl{third}-{fourth}"


def hardware_address(address: str) -> str:
    """Made of the address, so that a new host with an old one's address is not taken for it."""
    return "02:4c:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def bridge_up() -> None:
    with locked("bridge"):
        if not Path(f"/sys/class/net/{BRIDGE}").exists():
            # A hardware address of its own: else it takes one of its ports', and changes as hosts come and go.
            own = hardware_address(GATEWAY)
            run(["ip", "link", "add", BRIDGE, "address", own, "type", "bridge", "forward_delay", "0"])
            run(["ip", "addr", "add", f"{GATEWAY}/{PREFIX}", "dev", BRIDGE])
            run(["ip", "link", "set", BRIDGE, "up"])
        _more_inotify()
        _server_up()


def _more_inotify() -> None:
    """Each host's systemd takes some six inotify instances; the usual 128 end at twenty hosts, which then do not boot."""
    before, kept = INOTIFY_LIMIT.read_text(), STATE / "inotify-before"
    if int(before) < INOTIFY_WANTED:
        kept.write_text(before)
        INOTIFY_LIMIT.write_text(f"{INOTIFY_WANTED}\n")


def bridge_down_if_unused() -> None:
    """The last host to go takes the bridge and the server behind it along."""
    with locked("bridge"):
        if any(HOSTS.glob("*/host.json")):
            return
        _server_down()
        kept = STATE / "inotify-before"
        if kept.exists():
            INOTIFY_LIMIT.write_text(kept.read_text())
            kept.unlink()
        if Path(f"/sys/class/net/{BRIDGE}").exists():
            run(["ip", "link", "delete", BRIDGE])


def plug_in(name: str, address: str) -> None:
    space, link = namespace(name), outer_link(address)
    if not Path(f"/run/netns/{space}").exists():
        run(["ip", "netns", "add", space])
        # A host that was lost with this address may have left its cable, whose other end is not in this namespace.
        run(["ip", "link", "delete", link], check=False)
    if not Path(f"/sys/class/net/{link}").exists():
        own = hardware_address(address)
        run(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "address", own, "netns", space])
        run(["ip", "link", "set", link, "master", BRIDGE, "up"])
        run(["ip", "-n", space, "addr", "add", f"{address}/{PREFIX}", "dev", "eth0"])
        run(["ip", "-n", space, "link", "set", "eth0", "up"])
        run(["ip", "-n", space, "link", "set", "lo", "up"])


def plug_in_tap(address: str) -> None:
    """The cable of a virtual machine, which brings its own network card."""
    link = outer_link(address)
    if not Path(f"/sys/class/net/{link}").exists():
        run(["ip", "tuntap", "add", "dev", link, "mode", "tap"])
        run(["ip", "link", "set", link, "master", BRIDGE, "up"])


def unplug(name: str, address: str) -> None:
    run(["ip", "link", "delete", outer_link(address)], check=False)
    if Path(f"/run/netns/{namespace(name)}").exists():
        run(["ip", "netns", "delete", namespace(name)])


def processes(name: str) -> list[int]:
    """Every process of the host, as this machine numbers them."""
    space = namespace(name)
    if not Path(f"/run/netns/{space}").exists():
        return []
    return [int(word) for word in run(["ip", "netns", "pids", space], check=False).stdout.split()]


def set_cable(address: str, *, connected: bool) -> None:
    link = outer_link(address)
    run(["ip", "link", "set", link, "up" if connected else "down"])
    if connected:
        # The kernel reports a carrier up to a second later, on a busy machine more; until then the bridge forwards nothing.
        state, forwarding = Path(f"/sys/class/net/{link}/brport/state"), "3"
        until(lambda: state.read_text().strip() == forwarding, f"the bridge forwards to {link}, whose cable is in", 15)
        # Whoever asked for the host while it was away left "unreachable" behind; the next connection would get that answer.
        run(["ip", "neighbour", "flush", "to", address])


def free_address(taken: set[str]) -> str:
    for number in range(FIRST_FREE, LAST_FREE):
        address = str(IPv4Address(number))
        if not address.endswith((".0", ".255")) and address not in taken:
            return address
    raise LabError("no free address on the lab's bridge")


def _server_pid() -> int | None:
    try:
        pid = int((STATE / "server.pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if b"tests.lab.server" in command else None


def _server_up() -> None:
    if _server_pid():
        return
    (STATE / "server.ready").unlink(missing_ok=True)
    with (STATE / "server.log").open("ab") as log:
        server = Popen(
            [sys.executable, "-m", "tests.lab.server"],
            cwd=CHECKOUT, stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    (STATE / "server.pid").write_text(str(server.pid))
    deadline = time.monotonic() + 20
    while not (STATE / "server.ready").exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"the lab's repository server did not start; its log is {STATE / 'server.log'}")
        time.sleep(0.02)


def _server_down() -> None:
    pid = _server_pid()
    (STATE / "server.ready").unlink(missing_ok=True)
    if pid:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.02)
    (STATE / "server.pid").unlink(missing_ok=True)
