"""Figures of a moment, from the library (a stand-in) or nvidia-smi, and the program on a watched host that tells them."""

import json
import os
import subprocess
import sys
import threading
import time
from importlib import import_module
from types import SimpleNamespace

import pytest

from gpusetup_fleet.ssh import BOOT
from gpusetup_fleet.watch.fleet import sent
from tests.modules.stand_ins import write
from tests.stored import stored

MODULE = import_module("gpu_read.reader")


def test_a_look_has_every_figure(reader, told):
    told.gpu(0, compute=f"{os.getpid()}:{7 << 30}", shares=f"{os.getpid()}:90 {os.getpid()}:80", memory_temperature=71)
    document = reader.read()
    assert (document["source"], document["driver"]) == ("nvml", "580.159.04")
    (gpu,) = document["gpus"]
    (process,) = gpu.pop("processes")
    assert {name: process[name] for name in ("pid", "kind", "memory", "utilization")} == {
        "pid": os.getpid(), "kind": "C", "memory": 7 << 30, "utilization": 85,
    }  # fmt: skip
    assert "pytest" in process["command"] or "python" in process["command"]
    assert gpu == {
        "index": 0, "uuid": "GPU-0", "address": "0000:18:00.0", "name": "NVIDIA H200", "utilization": 97,
        "memory_utilization": 40, "memory_used": 100 << 30, "memory_total": 140 << 30, "power": 612.0, "power_limit": 700.0,
        "temperature": 64, "memory_temperature": 71, "fan": None, "clock": 1755, "clock_limit": 1980, "memory_clock": 3201,
        "throttle": ["sw_power_cap"], "mig": False, "pcie_tx": None, "pcie_rx": None, "nvlink_tx": None, "nvlink_rx": None,
    }  # fmt: skip


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when somebody sleeps."""
    clock = SimpleNamespace(now=10.0, time=float, monotonic=lambda: clock.now)
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(MODULE, "time", clock)
    return clock


def test_nvlink_counters_become_rates_over_the_time_between_two_looks(reader, told, clock):
    told.gpu(0, nvlink_tx=1000, nvlink_rx=0)
    assert reader.read()["gpus"][0]["nvlink_tx"] is None, "one look gives no rate"
    clock.now += 2
    told.gpu(0, nvlink_tx=1000 + (2 << 20))
    gpu = reader.read()["gpus"][0]
    assert gpu["nvlink_tx"] == 1 << 30, "KiB are bytes a second"
    assert gpu["nvlink_rx"] == 0
    clock.now += 2
    told.gpu(0, nvlink_tx=0)
    assert reader.read()["gpus"][0]["nvlink_tx"] is None, "the driver was loaded again"


def test_pcie_is_counted_over_a_short_while_for_its_counter_has_32_bits(reader, told, clock):
    """At 60 GB/s it begins again fourteen times a second: over two seconds the rate would come out as next to nothing."""
    told.gpu(0, pcie_tx=0, pcie_rx=(1 << 32) - 1000, pcie_rx_step=1_200_000_000)
    gpu = reader.read()["gpus"][0]
    assert (gpu["pcie_tx"], gpu["pcie_rx"]) == (0, 60_000_000_000)
    assert clock.now == pytest.approx(10.02)


def test_a_driver_that_is_exchanged_is_met_again(reader, told):
    assert reader.read()["gpus"]
    told.machine(count=None)
    gone = reader.read()
    assert (gone["error"], gone["gpus"]) == ("NVML: Driver Not Loaded", [])
    told.machine(count=1, driver="590.1")
    assert reader.read()["driver"] == "590.1"


def test_without_the_library_nvidia_smi_is_asked(tmp_path, monkeypatch):
    write(tmp_path / "bin", {"nvidia-smi": stored("reader_smi.txt")}, 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    document = MODULE.Reader("/nowhere/libnvidia-ml.so.1").read()
    assert (document["source"], document["driver"]) == ("nvidia-smi", "580.159.04")
    (gpu,) = document["gpus"]
    assert {name: gpu[name] for name in ("utilization", "memory_used", "power", "fan", "throttle", "mig", "nvlink_tx")} == {
        "utilization": 97, "memory_used": 1 << 30, "power": 612.5, "fan": None, "throttle": ["sw_power_cap"], "mig": False,
        "nvlink_tx": None,
    }  # fmt: skip
    assert gpu["processes"][0]["memory"] == 512 << 20
    assert "error" not in document
    write(tmp_path / "bin", {"nvidia-smi": "#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n"}, 0o755)
    document = MODULE.Reader("/nowhere/libnvidia-ml.so.1").read()
    assert (document["gpus"], "NVIDIA-SMI has failed" in document["error"]) == ([], True)
    assert "/nowhere/libnvidia-ml.so.1" in document["error"], "both reasons are told"


def test_a_command_is_told_without_its_secrets_and_not_for_the_next_program_of_that_number(tmp_path):
    folder = tmp_path / "4711"
    folder.mkdir()
    (folder / "stat").write_text("4711 (a) b) S " + " ".join(str(number) for number in range(30)))
    (folder / "cmdline").write_bytes(b"python\0train.py\0--api-key=hunter2\0")
    found = import_module("gpu_read.processes").Processes(str(tmp_path))
    assert found.describe(4711)["command"] == "python train.py --api-key=(masked)"
    (folder / "cmdline").write_bytes(b"other\0")
    found.forget()
    assert found.describe(4711)["command"].startswith("python"), "looked up once"
    (folder / "stat").write_text("4711 (a) S " + " ".join(str(number + 1) for number in range(30)))
    assert found.describe(4711)["command"] == "other"


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
    """Run an agent in a thread; returns what reads its lines. It ends when its input does."""
    (source, end), (outer, target) = os.pipe(), os.pipe()
    threads = []

    def start(reader, every):
        threads.append(
            threading.Thread(target=AGENT.Agent(reader, every, source=source, target=target).run, daemon=True)
        )
        threads[0].start()
        return lambda: json.loads(lines.readline())

    with os.fdopen(outer, encoding="utf-8") as lines:
        yield start
        os.close(end)
        threads[0].join(60)
    assert not threads[0].is_alive()


def test_a_line_for_each_look_until_the_input_ends(talk):
    line = talk(Slow(), 0.02)
    assert line() == {"watch": 1, "time": 1.0, "gpus": [], "looks": 1}
    assert line()["error"] == "ValueError: torn"
    assert line()["looks"] == 3, "one bad look is not the last"


def test_a_driver_that_hangs_is_told_of_and_the_end_does_not_wait_for_it(talk, monkeypatch):
    monkeypatch.setattr(AGENT, "PATIENCE", 0.05)
    line = talk(Slow(30), 0.15)
    first, second = line(), line()
    assert first["in"] == "nvmlDeviceGetMemoryInfo_v2"
    assert 0 < first["stuck"] < second["stuck"]


def test_it_runs_from_text_alone_and_leaves_nothing(tmp_path, nvml, told):
    program = subprocess.Popen(
        [sys.executable, "-I", "-c", BOOT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(nvml.parent), "NVML_STAND_IN": str(told.path)},
    )  # fmt: skip
    program.stdin.write(sent(0.1))
    program.stdin.flush()
    document = json.loads(program.stdout.readline())
    assert document["watch"] == 1
    assert document["gpus"][0]["name"] == "NVIDIA H200"
    program.stdin.close()
    assert program.wait(60) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["told"]


def test_an_older_driver_samples_pcie_itself_and_many_programs_fit(reader, told):
    pids = range(100001, 100041)
    told.gpu(0, pcie_sampled_tx=3, pcie_sampled_rx=5, compute=" ".join(f"{pid}:5" for pid in pids))
    gpu = reader.read()["gpus"][0]
    assert (gpu["pcie_tx"], gpu["pcie_rx"]) == (3 * 1024, 5 * 1024)
    assert [process["pid"] for process in gpu["processes"]] == list(pids)
