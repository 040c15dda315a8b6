"""`gpusetup watch` as a person has it: a terminal that is left as it was, lines where there is none, documents, CSV."""

import csv
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.stored import stored

TOLD = stored("watch_command_told.txt")


@pytest.fixture
def environment(nvml, tmp_path):
    (tmp_path / "told").write_text(TOLD)
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "TERM")}
    return kept | {
        "LD_LIBRARY_PATH": str(nvml.parent), "NVML_STAND_IN": str(tmp_path / "told"), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color",
        "GPUSETUP_STATE": str(tmp_path / "state"),
    }  # fmt: skip


def start(environment, *words, **more):
    # nohup around the tests would pass on that SIGHUP is ignored
    argv = ["env", "--default-signal=HUP", sys.executable, "-m", "gpusetup", "watch", *map(str, words)]
    return subprocess.Popen(argv, env=environment, text=more.pop("text", True), **more)


def run(environment, *words):
    process = start(environment, *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_once_prints_text_or_a_document_and_ends(environment):
    code, out, err = run(environment, "--once")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "1 of 1 host live  2 GPUs  50% busy  0.6 kW  1 in trouble"
    assert lines[2].split()[:2] == ["localhost", "50%"]
    assert lines[2].endswith("#1 slowed by heat (hardware)")
    assert lines[3].startswith("  0 H200               97%")
    code, out, _ = run(environment, "--once", "--json")
    told = json.loads(out)
    assert (code, told["schema"], told["ok"], out.count("\n")) == (0, "gpusetup/watch/1", True, 1)
    assert told["hosts"]["localhost"]["gpus"][1]["throttle"] == ["hw_thermal_slowdown"]


def test_an_inventory_s_hosts_are_reached_as_ansible_would(environment, tmp_path):
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        "here ansible_connection=local\n"
        "gone ansible_host=127.0.0.1 ansible_port=9\n"
        "secret ansible_host=127.0.0.1 ansible_password=hunter2\n"
        "odd ansible_connection=local ansible_python_interpreter='/bin/sh;id'\n"
    )
    code, out, err = run(environment, inventory, "--once", "--json")
    told = json.loads(out)["hosts"]
    states = {"here": "live", "gone": "down", "secret": "refused", "odd": "refused"}
    assert {name: host["state"] for name, host in told.items()} == states
    assert "Connection refused" in told["gone"]["reason"]
    assert "needs an SSH key" in told["secret"]["reason"]
    assert "hunter2" not in out + err
    assert code == 6, "the gravest: one cannot be reached"
    code, out, _ = run(environment, inventory, "--once", "--json", "--filter", "anna")
    told = json.loads(out)
    assert (code, told["ok"], told["hosts"]) == (6, False, {}), "it counts where a filter hides it"


def test_documents_come_one_a_line_until_they_are_not_wanted(environment):
    process = start(environment, "--json", "--every", "0.3", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    told = [json.loads(process.stdout.readline()) for _ in range(4)]
    process.stdout.close()
    assert process.wait(60) == 0, "as head would"
    assert told[-1]["hosts"]["localhost"]["state"] == "live"


def test_rows_are_appended_until_a_signal(environment, tmp_path):
    path = tmp_path / "gpus.csv"
    for number in (signal.SIGINT, signal.SIGTERM):
        before = path.stat().st_size if path.exists() else 0
        process = start(environment, "--csv", path, "--every", "0.3", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        end = time.monotonic() + 60
        while (path.stat().st_size if path.exists() else 0) <= before + 800:
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == 130
        assert process.stdout.read() == ""
    lines = list(csv.DictReader(path.open()))
    assert [line["gpu"] for line in lines[:2]] == ["0", "1"]
    assert path.read_text().count("time,host") == 1
    stamps = [line["time"] for line in lines if line["gpu"] == "0"]
    assert len(stamps) == len(set(stamps)), "a look is written once"


def _own_terminal():
    """So that Ctrl-C on it is a signal to the program."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_driver_that_hangs_is_told_with_what_it_was_asked_and_does_not_hold_up_the_end(environment):
    told = Path(environment["NVML_STAND_IN"])
    process = start(environment, "--json", "--every", "1", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    seen = []

    def until(state):
        while not seen or seen[-1]["state"] != state:
            assert len(seen) < 30, seen[-3:]
            seen.append(json.loads(process.stdout.readline())["hosts"]["localhost"])

    until("live")
    told.write_text(TOLD + "0 hang 600\n")
    until("stuck")
    assert seen[-1]["stuck"]["asked"].startswith("nvmlDevice")
    assert seen[-1]["stuck"]["seconds"] >= 5
    assert seen[-1]["gpus"][0]["utilization"] == 97, "what it told last"
    process.terminate()
    assert process.wait(60) == 130
    process.stdout.close()


class Terminal:
    """A pseudo terminal with a program on it."""

    def __init__(self, environment, *words, columns=80, lines=24):
        self.ours, self.theirs = pty.openpty()
        self.size(columns, lines)
        self.before = termios.tcgetattr(self.theirs)
        files = {"stdin": self.theirs, "stdout": self.theirs, "stderr": self.theirs}
        self.process = start(environment, *words, text=False, start_new_session=True, preexec_fn=_own_terminal, **files)
        self.seen = b""

    def size(self, columns, lines):
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds):
        end, got = time.monotonic() + seconds, b""
        while (left := end - time.monotonic()) > 0:
            if select.select([self.ours], [], [], left)[0]:
                got += os.read(self.ours, 65536)
        self.seen += got
        return got

    def until(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen[-2000:]
            self.read(0.1)

    def type(self, text):
        os.write(self.ours, text.encode())

    def ended(self):
        code = self.process.wait(60)
        self.read(0.2)
        return code

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(environment):
    made = []

    def make(*words, **more):
        made.append(Terminal(environment, *words, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


LEAVE = b"\x1b[?1049l"
"""What leaves the other screen of an xterm: the shell's own text is there again."""


@pytest.mark.parametrize(("how", "code"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130)])
def test_the_terminal_is_left_as_it_was(terminal, how, code):
    screen = terminal("--every", "0.3")
    screen.until(b"1 H200")
    if isinstance(how, str):
        screen.type(how)
    else:
        screen.process.send_signal(how)
    assert screen.ended() == code
    assert LEAVE in screen.seen
    assert b"\x1b[?25h" in screen.seen or b"\x1b[?12l" in screen.seen, "the cursor is back"
    assert termios.tcgetattr(screen.theirs) == screen.before


def test_only_cells_that_change_are_written(terminal, environment):
    screen = terminal("--every", "0.3")
    screen.until(b"1 H200")
    screen.read(1.0)
    quiet = screen.read(3.0)
    assert b"\x1b[2J" not in quiet, "nothing is cleared"
    assert len(quiet) < 3 * 120, "the clock, and nothing else"
    told = Path(environment["NVML_STAND_IN"])
    told.write_text(told.read_text().replace("0 utilization 97", "0 utilization 41"))
    screen.until(b"41")


def test_keys_and_sizes(terminal):
    screen = terminal("--every", "0.3", columns=80, lines=24)
    screen.until(b"q quit")
    screen.type("s")
    screen.until(b"sort trouble")
    screen.type("/h100\r")
    screen.until(b"filter h100")
    screen.size(40, 10)
    screen.process.send_signal(signal.SIGWINCH)
    screen.read(1.5)
    assert screen.process.poll() is None
    screen.type("q")
    assert screen.ended() == 0


def test_without_a_terminal_there_are_plain_lines(environment):
    process = start(environment, "--every", "0.3", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    lines = [process.stdout.readline() for _ in range(12)]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not any("\x1b" in line for line in lines)
    assert any(line.startswith("  0 H200") for line in lines)


def test_a_terminal_that_can_do_nothing_gets_lines_too(terminal, environment):
    environment["TERM"] = "dumb"
    screen = terminal("--every", "0.3")
    screen.until(b"0 H200")
    assert b"\x1b" not in screen.seen
