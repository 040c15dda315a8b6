"""Watched hosts that are simulated: their last look is given, or a small program tells it."""

import msgspec
import pytest

from gpusetup_fleet.model.watch import GpuNow, Look, Program
from gpusetup_fleet.ssh import Route
from gpusetup_fleet.watch.fleet import Link


def gpu(index=0, **values):
    base = {
        "name": "NVIDIA H200", "uuid": f"GPU-{index}", "address": f"0000:{index:02x}:00.0", "utilization": 90, "memory_used": 100 << 30,
        "memory_total": 140 << 30, "power": 600.0, "power_limit": 700.0, "temperature": 60, "clock": 1755, "throttle": (),
        "pcie_tx": 1e9, "pcie_rx": 2e9, "nvlink_tx": 1e11, "nvlink_rx": 1e11,
    }  # fmt: skip
    return GpuNow(index=index, **(base | values))


def program(pid=4711, **values):
    base = {"kind": "C", "memory": 80 << 30, "utilization": 88, "user": "anna", "command": "python train.py", "container": "docker 3f2a9c1b7d4e"}  # fmt: skip
    return Program(pid=pid, **(base | values))


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


class Silent:
    """A connection that never has anything to say."""

    def code(self):
        return None

    def end(self):
        pass


@pytest.fixture
def link(clock):
    """Make a host that told these GPUs: link("a", gpu(0), gpu(1))."""

    def make(host, *gpus, every=2.0, **look):
        made = Link(Route(host, ("true",)), every, clock)
        made.begin(Silent())
        if gpus or look:
            told = Look(watch=1, time=1795426950.0, source="nvml", driver="580.159.04", gpus=gpus, **look)
            made.take(msgspec.json.encode(told) + b"\n")
        return made

    return make
