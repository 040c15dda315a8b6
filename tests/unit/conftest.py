"""What the stand-in for NVIDIA's library tells, and a reader that asks it."""

from importlib import import_module

import pytest

H200 = {
    "name": "NVIDIA H200", "address": "00000000:18:00.0", "utilization": 97, "memory_utilization": 40,
    "memory_used": 100 << 30, "memory_total": 140 << 30, "power": 612000, "power_limit": 700000, "temperature": 64,
    "clock": 1755, "clock_limit": 1980, "memory_clock": 3201, "reasons": "0x4", "mig": 0,
}  # fmt: skip


class Told:
    """The text that the library answers from."""

    def __init__(self, path):
        self.path, self.lines = path, {}
        self.machine(count=1, driver="580.159.04")
        self.gpu(0, uuid="GPU-0", **H200)

    def machine(self, **values):
        return self._put("*", values)

    def gpu(self, index, **values):
        return self._put(index, values)

    def _put(self, who, values):
        for name, value in values.items():
            self.lines.pop((who, name), None)
            if value is not None:
                self.lines[who, name] = value
        text = "".join(f"{who} {name} {value}\n" for (who, name), value in self.lines.items())
        self.path.write_text(text)
        return self


@pytest.fixture
def told(tmp_path, monkeypatch):
    path = tmp_path / "told"
    monkeypatch.setenv("NVML_STAND_IN", str(path))
    return Told(path)


@pytest.fixture
def reader(nvml, told):
    return import_module("gpu_read.reader").Reader(str(nvml))
