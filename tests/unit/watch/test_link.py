"""What a host is called, from what came over its connection and when."""

import json

import pytest

from gpusetup.drive.ssh import Route
from gpusetup.watch.fleet import Link

from .conftest import Silent, gpu


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
    assert host.looks == 0
    host.take(b"x" * (5 << 20))
    assert len(host._rest) == 0, "a line without an end is thrown away"
    host.take(b'\n{"watch":1,"time":1.0,"gpus":[]}\n')
    assert host.looks == 1


def test_a_host_that_cannot_be_watched_says_so_at_once(clock):
    assert Link(Route("a", problem="it is reached with a password"), 2.0, clock).state == "refused"
