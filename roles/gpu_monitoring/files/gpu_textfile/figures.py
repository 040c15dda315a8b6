"""The metrics of a GPU: Prometheus name, nvidia-smi's field, and the factor between their units."""

from typing import Dict, NamedTuple

Values = Dict[str, float]
_READY, _FAILED = 3, 4


class Figure(NamedTuple):
    """A metric, nvidia-smi's field for it, and the factor from nvidia-smi's unit to ours."""

    metric: str
    field: str
    help: str
    scale: float = 1.0
    type: str = "gauge"


class Gpu(NamedTuple):
    """A GPU and its values by metric."""

    number: int
    uuid: str
    name: str
    bus: str
    values: Values


class UnreadableError(Exception):
    """The driver does not answer."""


FIGURES = (
    Figure("nvidia_smi_utilization_gpu_ratio", "utilization.gpu", "Share of the time in which a kernel ran.", 0.01),
    Figure(
        "nvidia_smi_utilization_memory_ratio",
        "utilization.memory",
        "Share of the time in which memory was read or written.",
        0.01,
    ),
    Figure("nvidia_smi_memory_used_bytes", "memory.used", "Memory in use.", 1048576),
    Figure("nvidia_smi_memory_total_bytes", "memory.total", "Memory of the GPU.", 1048576),
    Figure("nvidia_smi_power_draw_watts", "power.draw", "Power that the board draws."),
    Figure("nvidia_smi_enforced_power_limit_watts", "enforced.power.limit", "Power limit in force."),
    Figure("nvidia_smi_temperature_gpu", "temperature.gpu", "Temperature of the GPU in Celsius."),
    Figure("nvidia_smi_temperature_memory", "temperature.memory", "Temperature of its memory in Celsius."),
    Figure("nvidia_smi_clocks_current_sm_clock_hz", "clocks.current.sm", "Clock of the multiprocessors.", 1e6),
    Figure(
        "nvidia_smi_clocks_event_reasons_active",
        "clocks_event_reasons.active",
        "Bits of the reasons that hold the clock down.",
    ),
    Figure(
        "nvidia_smi_ecc_errors_uncorrected_volatile_total",
        "ecc.errors.uncorrected.volatile.total",
        "Uncorrectable memory errors since the driver was loaded.",
        type="counter",
    ),
    Figure(
        "nvidia_smi_ecc_errors_corrected_volatile_total",
        "ecc.errors.corrected.volatile.total",
        "Correctable memory errors since the driver was loaded.",
        type="counter",
    ),
    Figure(
        "nvidia_smi_remapped_rows_uncorrectable",
        "remapped_rows.uncorrectable",
        "Memory rows replaced after uncorrectable errors.",
    ),
    Figure("nvidia_smi_remapped_rows_pending", "remapped_rows.pending", "1 when a row is replaced at a reset."),
    Figure("nvidia_smi_remapped_rows_failure", "remapped_rows.failure", "1 when a row could not be replaced."),
    Figure("nvidia_smi_pcie_link_width_current", "pcie.link.width.current", "PCIe lanes in use."),
    Figure("nvidia_smi_pcie_link_width_max", "pcie.link.width.max", "PCIe lanes that GPU and slot can use."),
    Figure("nvidia_smi_pcie_link_gen_current", "pcie.link.gen.current", "PCIe generation in use."),
    Figure("nvidia_smi_pcie_link_gen_max", "pcie.link.gen.max", "PCIe generation that GPU and slot can use."),
    Figure(
        "nvidia_smi_fabric_state", "fabric.state", "NVLink fabric: 1 not started, 2 in progress, 3 ready, 4 failed."
    ),
    Figure("nvidia_smi_persistence_mode", "persistence_mode", "1 when the driver stays initialised."),
    Figure(
        "nvidia_smi_gpu_recovery_action",
        "gpu_recovery_action",
        "Recovery that the driver recommends: 0 nothing, 1 reset, 2 reboot, 3 drain peer-to-peer, 4 drain and reset.",
    ),
)


def fabric(state: int, success: bool) -> int:
    """Return the fabric's state; the driver also reports "completed" for one that failed."""
    return _FAILED if state == _READY and not success else state
