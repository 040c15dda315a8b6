"""The loop over all hosts, with small programs in place of SSH: nobody holds up the others; what a host is called."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gpusetup_fleet.ssh import Route
from gpusetup_fleet.watch.fleet import Fleet

from .conftest import Silent, gpu

LINES = """
import sys, time
sys.stdin.readline()
while True:
    print('{"watch":1,"time":1.0,"gpus":[{"index":0,"utilization":50}]}', flush=True)
    time.sleep(0.05)
"""


def route(name, script):
    return Route(name, (sys.executable, "-I", "-c", script))


def until(fleet, holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, [(link.host, link.state, link.reason) for link in fleet.links]
        fleet.turn(0.02)


def states(fleet):
    return {link.host: link.state for link in fleet.links}


@pytest.fixture
def fleet():
    made = []

    def make(*routes, **more):
        made.append(Fleet(routes, 0.05, dict(os.environ), **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_host_that_hangs_or_refuses_never_holds_up_the_others(fleet):
    hosts = fleet(
        route("well", LINES),
        route("mute", "import time; time.sleep(600)"),
        route("refusing", "import sys; sys.exit('ssh: connect to host x port 22: Connection refused')"),
        Route("password", problem="it is reached with a password; watch needs an SSH key"),
        Route("nothing", ("/no/such/program",)),
    )
    until(hosts, lambda: hosts.links[0].looks >= 3 and hosts.links[2].reason)
    assert states(hosts) == {
        "well": "live", "mute": "connecting", "refusing": "down", "password": "refused", "nothing": "down",
    }  # fmt: skip
    assert hosts.links[2].reason == "connect to host x port 22: Connection refused"
    assert "cannot start /no/such/program" in hosts.links[4].reason


def test_a_host_that_stops_midway_is_silent_with_its_age_and_comes_back(fleet):
    hosts = fleet(route("a", LINES), route("b", LINES))
    first, second = hosts.links
    until(hosts, lambda: first.looks and second.looks)
    os.kill(first.running.process.pid, signal.SIGSTOP)
    first.heard -= 6.0  # as if six seconds had passed
    first.seen -= 6.0
    looks = second.looks
    until(hosts, lambda: second.looks > looks + 2)
    assert states(hosts) == {"a": "silent", "b": "live"}
    assert first.age > 6
    os.kill(first.running.process.pid, signal.SIGCONT)
    until(hosts, lambda: first.state == "live")


def test_a_silent_connection_is_given_up_and_made_again(fleet):
    hosts = fleet(route("a", LINES))
    (link,) = hosts.links
    until(hosts, lambda: link.looks)
    pid = link.running.process.pid
    os.kill(pid, signal.SIGSTOP)
    link.heard -= 60
    until(hosts, lambda: link.running is None)
    assert link.reason == "no answer"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    link.next_try = 0.0
    until(hosts, lambda: link.state == "live")


def test_no_more_connections_are_being_made_at_once_than_asked_for(fleet):
    hosts = fleet(*(route(f"h{number}", "import time; time.sleep(600)") for number in range(6)), at_once=2)
    for _ in range(5):
        hosts.turn(0.02)
    assert list(states(hosts).values()).count("connecting") == 2
    assert list(states(hosts).values()).count("waiting") == 4


MANY = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from gpusetup_fleet.ssh import Route
from gpusetup_fleet.watch.fleet import Fleet
from contextlib import closing
argv = ("sh", "-c", 'read x; echo "$0"; sleep 60', sys.argv[1])
with closing(Fleet([Route(str(number), argv) for number in range(40)], 1.0, dict(os.environ), at_once=40)) as fleet:
    for _ in range(400):
        if all(link.looks for link in fleet.links):
            break
        fleet.turn(0.05)
    print({link.state for link in fleet.links}, {link.reason for link in fleet.links})
"""


def test_a_fleet_may_have_more_pipes_than_a_login_is_allowed_at_first():
    argv = [sys.executable, "-c", MANY, '{"watch":1,"time":1.0}']
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("{'live'} {''}\n", "")


def gone(group: int) -> bool:
    """Whether a group has no process any more; one that has ended counts until init reaps it."""
    for _ in range(200):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_everything_ends_with_the_fleet(fleet):
    hosts = fleet(
        route("a", LINES), route("b", "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)")
    )
    until(hosts, lambda: hosts.links[0].looks)
    groups = [link.running.process.pid for link in hosts.links]
    hosts.close()
    for group in groups:
        assert gone(group)


def test_the_reader_arrives_even_through_a_narrow_pipe(fleet):
    slow = 'import sys, time; time.sleep(0.3); n = len(sys.stdin.readline()); print(\'{"watch":1,"time":%d}\' % n, flush=True); time.sleep(600)'
    hosts = fleet(route("a", slow))
    hosts._program = b"x" * 300_000 + b"\n"
    until(hosts, lambda: hosts.links[0].looks)
    assert hosts.links[0].look.time == 300_001


def test_a_host_is_live_then_silent_then_given_up_and_met_again(link, clock):
    host = link("a")
    assert host.state == "connecting"
    line = json.dumps({"watch": 1, "time": 1.0, "gpus": [{"index": 0}]}).encode()
    host.take(line[:10])
    assert host.take(line[10:] + b"\n" + line[:5]) == 1, "a line may come in pieces"
    assert (host.state, host.age) == ("live", 0.0)
    clock.now += 8
    assert (host.state, host.age) == ("silent", 8.0)
    clock.now += 30
    assert host.is_lost
    host.drop("no answer")
    assert (host.state, host.reason, host.running) == ("down", "no answer", None)
    assert host.look is not None, "its last figures stay, with their age"
    assert 0 < host.next_try - clock.now < 2
    host.begin(Silent())
    assert host.state == "connecting"


def test_the_wait_grows_while_nothing_comes_and_is_short_after_something_came(link, clock):
    host, waits = link("a"), []
    for _ in range(9):
        host.drop("refused")
        waits.append(host.next_try - clock.now)
        host.begin(Silent())
    assert waits == sorted(waits)
    assert 60 <= waits[-1] <= 80
    host.take(b'{"watch":1,"time":1.0}\n')
    host.drop("gone")
    assert host.next_try - clock.now < 2


def test_a_driver_that_hangs_is_told_from_a_host_that_does(link, clock):
    host = link("a", gpu())
    host.take(b'{"watch":1,"time":2.0,"stuck":12.5,"in":"nvmlDeviceGetMemoryInfo_v2"}\n')
    assert (host.state, host.stuck.asked) == ("stuck", "nvmlDeviceGetMemoryInfo_v2")
    clock.now += 20
    assert host.state == "silent"
    host.take(b'{"watch":1,"time":2.0,"gpus":[]}\n')
    assert host.state == "live"


@pytest.mark.parametrize(
    ("err", "reason"),
    [
        (b"Warning: Permanently added 'a' to the list\nssh: connect to host a port 22: Connection refused\n", "connect to host a port 22: Connection refused"),
        (b"Host key verification failed.\r\n", "Host key verification failed."),
        (b"no Python 3 on this host\n", "no Python 3 on this host"),
        (b"", "the connection ended"),
    ],
)  # fmt: skip
def test_the_reason_is_what_ssh_said_last(link, err, reason):
    host = link("a")
    host.say(err)
    host.drop()
    assert host.reason == reason


def test_what_is_no_line_of_ours_is_a_reason_and_never_harm(link):
    host = link("a")
    host.take(b"Welcome to a!\n\xff\xfe\n" + b'{"watch":2}\n[1]\n')
    for evil in (b'"error":"\xff"}', b'"x":' + b"[" * 200_000, b'"gpus":[{"index":0,"power":1e308}]}'):
        host.take(b'{"watch":1,"time":1.0,' + evil + b"\n")
    assert host.looks == 0
    host.take(b"x" * (5 << 20))
    assert len(host._rest) == 0, "a line without an end is thrown away"
    host.take(b'\n{"watch":1,"time":1.0,"gpus":[]}\n')
    assert host.looks == 1
