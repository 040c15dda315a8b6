"""The textfile by NVIDIA's library, which is a stand-in that answers from a text."""

from importlib import import_module

import pytest

NVML, FIGURES = import_module("gpu_textfile.nvml"), import_module("gpu_textfile.figures")
HEALTH = {
    "memory_temperature": 61, "recovery_action": 2, "ecc_uncorrected": 3, "ecc_corrected": 40, "rows_uncorrected": 1,
    "rows_pending": 1, "rows_failed": 0, "pcie_width": 8, "pcie_width_max": 16, "persistence": 1, "fabric_state": 3,
    "fabric_status": 0,
}  # fmt: skip


def test_a_gpu_tells_its_health_under_the_names_of_the_rules(nvml, told):
    told.gpu(0, **HEALTH)
    (gpu,) = NVML.by_library(str(nvml))
    assert (gpu.number, gpu.uuid, gpu.name, gpu.bus) == (0, "GPU-0", "NVIDIA H200", "0000:18:00")
    assert {name.partition("nvidia_smi_")[2]: value for name, value in gpu.values.items()} == {
        "utilization_gpu_ratio": 0.97, "utilization_memory_ratio": 0.4, "memory_used_bytes": 100 << 30,
        "memory_total_bytes": 140 << 30, "power_draw_watts": 612, "enforced_power_limit_watts": 700, "temperature_gpu": 64,
        "temperature_memory": 61, "clocks_current_sm_clock_hz": 1.755e9, "clocks_event_reasons_active": 4,
        "ecc_errors_uncorrected_volatile_total": 3, "ecc_errors_corrected_volatile_total": 40,
        "remapped_rows_uncorrectable": 1, "remapped_rows_pending": 1, "remapped_rows_failure": 0,
        "pcie_link_width_current": 8, "pcie_link_width_max": 16, "persistence_mode": 1, "fabric_state": 3,
        "gpu_recovery_action": 2,
    }  # fmt: skip
    assert set(gpu.values) <= {figure.metric for figure in FIGURES.FIGURES}


def test_what_a_gpu_does_not_tell_is_left_out(nvml, told):
    (gpu,) = NVML.by_library(str(nvml))
    assert not {name for name in gpu.values if "ecc" in name or "remapped" in name or "fabric" in name}


@pytest.mark.parametrize(("state", "status", "number"), [(3, 2, 4), (2, 0, 2)])
def test_a_fabric_that_ended_with_an_error_is_not_ready(nvml, told, state, status, number):
    told.gpu(0, fabric_state=state, fabric_status=status)
    (gpu,) = NVML.by_library(str(nvml))
    assert gpu.values["nvidia_smi_fabric_state"] == number


def test_a_lost_gpu_hides_no_other_and_a_driver_that_is_not_loaded_is_said(nvml, told):
    told.machine(count=2).gpu(0, lost=1).gpu(1, uuid="GPU-1", temperature=40)
    assert [gpu.uuid for gpu in NVML.by_library(str(nvml))] == ["GPU-1"]
    told.machine(count=None)
    with pytest.raises(FIGURES.UnreadableError, match="NVML: Driver Not Loaded"):
        NVML.by_library(str(nvml))
