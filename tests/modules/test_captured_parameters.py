"""The options that a real driver shows (an H100 with driver 580, the open module) are found by the names that people set."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpusetup.content import host_code

kernel_module = host_code("gpu_host.kernel_module")
CAPTURED = Path(__file__).resolve().parents[1] / "fixtures/proc/nvidia-params-h100-580.txt"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(kernel_module, "PARAMETERS", str(CAPTURED))
    return kernel_module._shown


def test_options_are_found_as_the_driver_shows_them(shown: Any) -> None:
    options = {
        "NVreg_RestrictProfilingToAdminUsers": "0", "NVreg_PreserveVideoMemoryAllocations": "0", "NVreg_NvLinkDisable": "0",
        "NVreg_EnableGpuFirmware": "18", "NVreg_RegistryDwords": "", "NVreg_TemporaryFilePath": "",
    }  # fmt: skip
    assert shown(list(options)) == options


def test_every_parameter_of_the_driver_can_be_asked_for(shown: Any) -> None:
    names = re.findall(r"^(\w+):", CAPTURED.read_text(), re.MULTILINE)
    assert len(names) > 30
    assert set(shown([f"NVreg_{name}" for name in names])) == {f"NVreg_{name}" for name in names}
