"""The picture: what is on it at which size, in which order, after which key, and how little of it is written anew."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from gpusetup_fleet.model.watch import GpuNow, Program
from gpusetup_fleet.watch.documents import document, rows
from gpusetup_fleet.watch.figures import Filter, ordered
from gpusetup_fleet.watch.view import View

from .conftest import Silent, gpu, program


def text(lines):
    return ["".join(span.text for span in line).rstrip() for line in lines]


def shown(*hosts, width=120, height=10, clock="", **view):
    return text(View(**view).lines(list(hosts), width, height, clock))


def test_a_small_fleet_is_shown_open_with_its_programs(link):
    hosts = [
        link("gpu-2", gpu(0)),
        link("gpu-10", gpu(0, processes=(program(),)), gpu(1, throttle=("hw_thermal_slowdown",), temperature=91)),
    ]
    lines = text(View().lines(hosts, 120, 20, "12:00:00"))
    assert lines[0] == "2 of 2 hosts live  3 GPUs  90% busy  1.8 kW  1 in trouble".ljust(112) + "12:00:00"
    assert lines[1:7] == [
        "HOST                  UTIL  MEM    MEMORY       POWER  TEMP   CLOCK  PCIE ↑/↓ NVLINK ↑/↓",
        "gpu-2                  90%  71% 100G/140G   600W/700W  60°C 1755MHz 1.0G/2.0G  100G/100G",
        "  0 H200               90%  71% 100G/140G   600W/700W  60°C 1755MHz 1.0G/2.0G  100G/100G",
        "gpu-10                 90%  71% 200G/280G 1200W/1400W  91°C 1755MHz 2.0G/4.0G  200G/200G  #1 slowed by heat (hardware)",
        "  0 H200               90%  71% 100G/140G   600W/700W  60°C 1755MHz 1.0G/2.0G  100G/100G  anna",
        "          4711 anna         80G  88% docker 3f2a9c1b7d4e python train.py",
    ]  # fmt: skip


def test_80_columns_hold_the_figures_that_matter(link):
    lines = shown(link("gpu-1", gpu(0, processes=(program(),))), width=80, clock="12:00:00")
    assert max(map(len, lines)) <= 80
    assert "HOST                  UTIL  MEM       POWER  TEMP" in lines[1]
    assert lines[3] == "  0 H200               90%  71%   600W/700W  60°C  anna"


@pytest.mark.parametrize("value", [10**300, 1e308, -1e308, 2**53, 0, -1])
def test_no_number_of_a_host_ends_the_view(link, value):
    fields = [{name: value} for name in GpuNow.__struct_fields__]
    fields += [{"processes": [{"pid": 1} | {name: value}]} for name in Program.__struct_fields__]
    for field in fields:
        host = link("a", gpu())
        host.take(json.dumps({"watch": 1, "time": 1.0, "gpus": [{"index": 0} | field] * 2}).encode() + b"\n")
        View(sort="memory").listing([host], 120)
        assert rows(host, 1.0)
        assert document([host], [host], 1.0).ok, field


@pytest.mark.parametrize("width", [1, 2, 10, 25, 39, 40, 60, 80, 200])
@pytest.mark.parametrize("height", [1, 2, 3, 4, 24])
def test_any_size_of_terminal_is_filled_and_never_left(link, width, height):
    hosts = [link(f"gpu-{number}", gpu(0), gpu(1)) for number in range(30)]
    for opened in (False, True):
        lines = View(all_open=opened or None).lines(hosts, width, height, "12:00:00")
        assert len(lines) <= max(height, 1)
        assert all(sum(len(span.text) for span in line) <= width for line in lines[1:]), (width, height)


def test_200_hosts_are_one_screen_side_by_side(link):
    hosts = [link(f"gpu-{number:03}", gpu(0), gpu(1, temperature=60 + number % 30)) for number in range(200)]
    hosts[7] = link("gpu-007", gpu(0, throttle=("sw_thermal_slowdown",)))
    lines = shown(*hosts, width=200, height=50, clock="12:00:00")
    assert lines[8].startswith("gpu-007          #0 slowed by heat ")
    assert [host.host for host in hosts if host.host not in "\n".join(lines)] == []
    assert lines[1].startswith("gpu-000           90%  71%  60°  1200W ")


def test_a_host_without_an_answer_says_for_how_long(link, clock):
    silent, down, fresh = link("silent", gpu(0)), link("down", gpu(0)), link("fresh")
    clock.now += 200
    down.drop("connect to host down port 22: No route to host")
    lines = shown(silent, down, fresh, all_open=False)
    by_name = {line.split()[0]: line for line in lines[2:5]}
    wide = shown(down, width=200)[2]
    assert ("down: connect to host down port 22" in wide, "last look 3m ago" in wide) == (True, True)
    assert "no line for 3m, last look" in by_name["silent"]
    assert by_name["fresh"].endswith("connecting")
    assert lines[0].startswith("0 of 3 hosts live")


def test_a_host_that_is_met_again_shows_how_old_its_figures_are(link, clock):
    host = link("a", gpu(0))
    clock.now += 40
    host.drop("no answer")
    host.begin(Silent())
    lines = View(all_open=True).lines([host], 120, 10, "")
    assert text(lines)[2].endswith("connecting, last look 40s ago")
    assert [span.style for span in lines[3]] == ["dim"], "figures of then, not of now"


def test_keys_open_sort_and_filter(link):
    hosts = [link("a", gpu(0, temperature=50)), link("b", gpu(0, temperature=80), gpu(1, utilization=5))]
    view = View(all_open=False)

    def first_words():
        return [row.split()[0] for row in text(view.lines(hosts, 100, 20, ""))[2:] if row]

    first_words()
    view.move(1)
    view.open_chosen(hosts, 18)
    assert first_words()[:4] == ["a", "b", "0", "1"]
    view.open_chosen(hosts, 18)
    assert first_words()[:2] == ["a", "b"]
    while view.sort != "temp":
        view.next_sort()
    assert first_words()[:2] == ["b", "a"]
    view.turned = True
    assert first_words()[0] == "a"
    view.chosen = Filter(["b", "580"])
    view.open_all()
    assert first_words()[:3] == ["b", "1", "0"]
    assert "filter b 580" in text(view.lines(hosts, 100, 20, ""))[0]


def test_a_long_list_follows_the_mark(link):
    hosts = [link(f"h{number}", gpu(0)) for number in range(40)]
    view = View(all_open=True)
    view.lines(hosts, 60, 10, "")
    view.move(30)
    lines = view.lines(hosts, 60, 10, "")
    marked = [span.text for line in lines for span in line if span.style == "chosen"]
    assert marked[0].startswith("h15"), "each host has two rows"
    view.move(1000)
    view.lines(hosts, 60, 10, "")
    assert view.at == 79


def test_what_a_host_says_cannot_steer_the_terminal(link):
    evil = program(command="a\x1b]0;b\nc", user="\x07u")
    picture = "".join(shown(link("a", gpu(0, name="\x1b[2Jevil", processes=(evil,)), error="")))
    assert ("\x1b" in picture, "\x07" in picture, "?[2Jevil" in picture) == (False, False, True)


@pytest.mark.parametrize(
    ("terms", "left"),
    [
        ([], ["a/0", "b/0", "b/1", "c"]), (["Anna"], ["a/0"]), (["anna", "sw_power_cap"], []), (["train"], ["a/0"]),
        (["sw_power_cap"], ["b/0"]), (["c"], ["a/0", "b/0", "c"]), (["nothing has this"], []),
        (["580"], ["a/0", "b/0", "b/1"]),
    ],
)  # fmt: skip
def test_filters(link, terms, left):
    hosts = [
        link("a", gpu(0, processes=(program(),))),
        link("b", gpu(0, throttle=("sw_power_cap",)), gpu(1, utilization=0, memory_used=0, temperature=30)),
        link("c"),
    ]
    chosen = Filter(terms)
    found = []
    for host in hosts:
        gpus = chosen.gpus(host)
        found += [] if gpus is None else [f"{host.host}/{one.index}" for one in gpus] or [host.host]
    assert found == left


def test_hosts_are_ordered_as_people_count(link, clock):
    hosts = [link(name, gpu(0)) for name in ("gpu-10", "gpu-9", "b")]
    hosts[0].drop("gone")
    assert [host.host for host in ordered(hosts, "name")] == ["b", "gpu-9", "gpu-10"]
    assert ordered(hosts, "trouble")[0].host == "gpu-10"


ROOT = Path(__file__).parents[3]
DRAWS = """
import json, os, sys
from gpusetup_fleet.cli.watch_screen import Screen
from gpusetup_fleet.watch.view import Span

def picture(changed):
    hosts = [f"gpu-{number:03}           {41 if number in changed else 97}%  71%  60°  1200W " for number in range(200)]
    return [[Span(hosts[place + 50 * column].ljust(49) + " ", "bad" if place == 3 else "") for column in range(4)] for place in range(50)]

with Screen() as screen:
    for changed in ([], [], range(0, 200, 20), []):
        screen.draw(picture(changed))
        os.write(1, b"\\0")  # the end of a picture
"""


def test_only_what_changed_is_written():
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    for name in ("NO_COLOR", "LINES", "COLUMNS"):
        environment.pop(name, None)
    program = subprocess.Popen([sys.executable, "-c", DRAWS], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment)  # fmt: skip
    os.close(theirs)
    seen = bytearray()

    def read():
        try:
            while piece := os.read(ours, 65536):
                seen.extend(piece)
        except OSError:
            pass  # the last one has closed it

    reading = threading.Thread(target=read)
    reading.start()
    assert program.wait(30) == 0, program.stderr.read().decode()
    reading.join(10)
    os.close(ours)
    program.stderr.close()
    first, same, ten, back, _ = map(len, bytes(seen).split(b"\0"))
    assert (first > 200 * 20, same < 30, max(ten, back) < first / 10) == (True,) * 3, (first, same, ten, back)
