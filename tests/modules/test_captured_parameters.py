"""The options that a real driver shows (an H100 with driver 580, the open module) are found by the names that people set."""

import re
from pathlib import Path

import pytest

from gpusetup.content import host_code

kernel_module = host_code("gpu_host.kernel_module")
CAPTURED = Path(__file__).resolve().parents[1] / "fixtures/proc/nvidia-params-h100-580.txt"


@pytest.fixture
def shown(monkeypatch):
    monkeypatch.setattr(kernel_module, "PARAMETERS", str(CAPTURED))
    return kernel_module._shown


def test_options_are_found_as_the_driver_shows_them(shown):
    options = {
        "NVreg_RestrictProfilingToAdminUsers": "0", "NVreg_PreserveVideoMemoryAllocations": "0", "NVreg_NvLinkDisable": "0",
        "NVreg_EnableGpuFirmware": "18", "NVreg_RegistryDwords": "", "NVreg_TemporaryFilePath": "",
    }  # fmt: skip
    assert shown(list(options)) == options


def test_every_parameter_of_the_driver_can_be_asked_for(shown):
    names = re.findall(r"^(\w+):", CAPTURED.read_text(), re.MULTILINE)
    assert len(names) > 30
    assert set(shown([f"NVreg_{name}" for name in names])) == {f"NVreg_{name}" for name in names}
