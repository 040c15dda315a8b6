"""What dcgm-exporter collects: what the rules of `gpusetup export monitoring` need."""

# ruff: noqa: E501
import re

_RENAMED_SINCE = (4, 7)
_BOTH = re.compile(r"^(.*?)\|(.*?)(?=[,;])", re.MULTILINE)


def of(dcgm: str) -> str:
    """Return the counters for a version of DCGM; without one, by their newest names."""
    numbers = tuple(int(part) for part in dcgm.split(".")[:2]) if dcgm else _RENAMED_SINCE
    return _BOTH.sub(r"\2" if numbers >= _RENAMED_SINCE else r"\1", _COUNTERS)


_COUNTERS = """\
# What dcgm-exporter collects: dcgm-exporter -f FILE
# For DCGM up to 4.6|# For DCGM 4.7 and newer; format: field, type, help
DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_GPU_UTIL_RATIO, gauge, share of the time in which a kernel ran on the GPU
DCGM_FI_DEV_MEM_COPY_UTIL|DCGM_FI_DEV_MEMORY_UTIL_RATIO, gauge, share of the time in which the GPU's memory was read or written
DCGM_FI_PROF_SM_ACTIVE|DCGM_FI_PROF_SM_UTIL_RATIO, gauge, share of the cycles in which a multiprocessor had work - over all of them
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE|DCGM_FI_PROF_TENSOR_UTIL_RATIO, gauge, share of the cycles in which the tensor cores worked
DCGM_FI_PROF_DRAM_ACTIVE|DCGM_FI_PROF_DRAM_UTIL_RATIO, gauge, share of the cycles in which the memory interface was busy
DCGM_FI_DEV_FB_USED|DCGM_FI_DEV_FB_USED_BYTES, gauge, frame buffer in use
DCGM_FI_DEV_FB_TOTAL|DCGM_FI_DEV_FB_CAPACITY_BYTES, gauge, frame buffer of the GPU
DCGM_FI_DEV_POWER_USAGE|DCGM_FI_DEV_BOARD_POWER_WATTS, gauge, power that the board draws
DCGM_FI_DEV_ENFORCED_POWER_LIMIT|DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS, gauge, limit in force
DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, of the GPU
DCGM_FI_DEV_MEMORY_TEMP|DCGM_FI_DEV_MEMORY_TEMP_CELSIUS, gauge, of the GPU's memory
DCGM_FI_DEV_SLOWDOWN_TEMP|DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS, gauge, temperature at which the GPU slows itself down
DCGM_FI_DEV_SM_CLOCK|DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, clock of the multiprocessors
DCGM_FI_DEV_THERMAL_VIOLATION|DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL, counter, time slowed down by temperature
DCGM_FI_DEV_POWER_VIOLATION|DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL, counter, time slowed down by the power limit
DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, bits of the reasons that hold the clock down
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter, since the driver was loaded
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, counter, since the driver was loaded
DCGM_FI_DEV_ROW_REMAP_FAILURE|DCGM_FI_DEV_ROW_REMAP_FAILED, gauge, 1 when a memory row could not be replaced
DCGM_FI_DEV_ROW_REMAP_PENDING, gauge, 1 when a row is replaced at the next reset
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS|DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL, counter, memory rows replaced after uncorrectable errors
DCGM_FI_DEV_RETIRED_DBE|DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL, counter, pages retired after double-bit errors
DCGM_FI_DEV_RETIRED_SBE|DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL, counter, pages retired after single-bit errors
DCGM_FI_DEV_PCIE_REPLAY_COUNTER|DCGM_FI_DEV_PCIE_REPLAY_TOTAL, counter, packets sent again on the PCI Express link
DCGM_FI_DEV_PCIE_LINK_WIDTH, gauge, lanes in use
DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH, gauge, lanes that the GPU and its slot can use
DCGM_FI_DEV_PCIE_LINK_GEN, gauge, generation in use; lower while the GPU is idle
DCGM_FI_DEV_PCIE_MAX_LINK_GEN, gauge, generation that the GPU and its slot can use
DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL|DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL, counter, times that a link was trained again after errors
DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL|DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL, counter, packets sent again on NVLink
DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL|DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL, counter, packets that arrived damaged
DCGM_FI_DEV_FABRIC_MANAGER_STATUS, gauge, 0 not there - 1 not started - 2 in progress - 3 ready - 4 failed
DCGM_FI_DEV_PERSISTENCE_MODE|DCGM_FI_DEV_GPU_PERSISTENCE_MODE, gauge, 1 when the driver stays initialised
DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION|DCGM_FI_DEV_GPU_RECOVERY_ACTION, gauge, the driver wants: 0 nothing - 1 reset - 2 reboot - 3 drain P2P - 4 drain and reset
DCGM_FI_DEV_VIRTUAL_MODE|DCGM_FI_DEV_GPU_VIRTUAL_MODE, gauge, 0 none - 1 passed through - 2 vGPU guest - 3 and 4 vGPU host
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, 1 when the guest has its licence
DCGM_FI_DEV_XID_ERRORS|DCGM_FI_DEV_XID_ERROR, gauge, number of the last Xid
DCGM_EXP_XID_ERRORS_COUNT, gauge, Xids within the last minutes
"""
