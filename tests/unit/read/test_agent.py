"""What runs on a watched host: sent as text, it tells a line for each look until its input ends."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import pytest

from gpusetup.drive.ssh import BOOT
from gpusetup.watch.fleet import sent

AGENT = import_module("gpu_read.agent")


class Slow:
    """A reader whose driver takes its time."""

    doing = "nvmlDeviceGetMemoryInfo_v2"

    def __init__(self, seconds=0.0):
        self.seconds, self.looks = seconds, 0

    def read(self):
        time.sleep(self.seconds)
        self.looks += 1
        if self.looks == 2:
            raise ValueError("torn")
        return {"time": 1.0, "gpus": [], "looks": self.looks}


@pytest.fixture
def talk():
    """Run an agent in a thread; returns what reads its lines, and what ends it."""
    opened = []

    def start(reader, every):
        inner, outer = os.pipe(), os.pipe()
        agent = AGENT.Agent(reader, every, source=inner[0], target=outer[1])
        thread = threading.Thread(target=agent.run, daemon=True)
        thread.start()
        lines = os.fdopen(outer[0], encoding="utf-8")
        opened.append((inner[1], lines))
        return lambda: json.loads(lines.readline()), thread, inner[1]

    yield start
    for end, lines in opened:
        with contextlib.suppress(OSError):
            os.close(end)
        lines.close()


def test_a_line_for_each_look_until_the_input_ends(talk):
    line, thread, end = talk(Slow(), 0.02)
    assert line() == {"watch": 1, "time": 1.0, "gpus": [], "looks": 1}
    assert line()["error"] == "ValueError: torn"
    assert line()["looks"] == 3, "one bad look is not the last"
    os.close(end)
    thread.join(5)
    assert not thread.is_alive()


def test_a_driver_that_hangs_is_told_of_and_the_end_does_not_wait_for_it(talk, monkeypatch):
    monkeypatch.setattr(AGENT, "PATIENCE", 0.05)
    line, thread, end = talk(Slow(30), 0.15)
    first, second = line(), line()
    assert first["in"] == "nvmlDeviceGetMemoryInfo_v2"
    assert 0 < first["stuck"] < second["stuck"] < 5
    os.close(end)
    thread.join(5)
    assert not thread.is_alive()


def test_it_runs_from_text_alone_and_leaves_nothing(tmp_path, library, told):
    program = subprocess.Popen(
        [sys.executable, "-I", "-c", BOOT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(Path(library).parent), "NVML_STAND_IN": str(told.path)},
    )  # fmt: skip
    program.stdin.write(sent(0.1))
    program.stdin.flush()
    document = json.loads(program.stdout.readline())
    assert document["watch"] == 1
    assert document["gpus"][0]["name"] == "NVIDIA H200"
    program.stdin.close()
    assert program.wait(10) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["told"]
