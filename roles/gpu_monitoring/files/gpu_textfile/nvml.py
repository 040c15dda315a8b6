"""Read a GPU's metrics from the driver's library: those of `gpu_read`, and its health."""

import contextlib
import ctypes
from typing import Any, Dict, Iterator, List, Optional, Tuple

from gpu_read import nvml

from .figures import Gpu, UnreadableError, fabric

_UNCORRECTED, _CORRECTED, _VOLATILE = 1, 0, 0
_WHOLE = (
    ("nvidia_smi_pcie_link_width_current", "nvmlDeviceGetCurrPcieLinkWidth"),
    ("nvidia_smi_pcie_link_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    ("nvidia_smi_pcie_link_gen_current", "nvmlDeviceGetCurrPcieLinkGeneration"),
    ("nvidia_smi_pcie_link_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("nvidia_smi_persistence_mode", "nvmlDeviceGetPersistenceMode"),
)
Told = Iterator[Tuple[str, Optional[float]]]


class _Fabric(ctypes.Structure):
    _fields_ = [
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    ]


class Health(nvml.Nvml):
    """The library with calls about health; values that a driver or GPU does not support are left out."""

    def gpu(self, number: int, device: Any) -> Gpu:
        """Return one GPU with its values."""
        values = {metric: float(value) for metric, value in self._values(device) if value is not None}
        bus = (self.address(device) or "").rpartition(".")[0]
        return Gpu(number, self.uuid(device) or "", self.name(device) or "", bus, values)

    def _values(self, device: Any) -> Told:
        busy, memory_busy = self.utilization(device)
        yield "nvidia_smi_utilization_gpu_ratio", None if busy is None else busy / 100
        yield "nvidia_smi_utilization_memory_ratio", None if memory_busy is None else memory_busy / 100
        used, total = self.memory(device)
        yield "nvidia_smi_memory_used_bytes", used
        yield "nvidia_smi_memory_total_bytes", total
        yield "nvidia_smi_power_draw_watts", self.power(device)
        yield "nvidia_smi_enforced_power_limit_watts", self.power_limit(device)
        yield "nvidia_smi_temperature_gpu", self.temperature(device)
        megahertz = self.clock(device, nvml.CLOCK_SM)
        yield "nvidia_smi_clocks_current_sm_clock_hz", None if megahertz is None else megahertz * 1e6
        yield "nvidia_smi_clocks_event_reasons_active", self.throttle(device)
        yield from self._health(device)

    def _health(self, device: Any) -> Told:
        told = self.fields(device, ("memory_temperature", "recovery_action"))
        temperature, action = told.get("memory_temperature"), told.get("recovery_action")
        yield "nvidia_smi_temperature_memory", temperature.value if temperature and temperature.value else None
        yield "nvidia_smi_gpu_recovery_action", action.value if action else None
        yield "nvidia_smi_ecc_errors_uncorrected_volatile_total", self._errors(device, _UNCORRECTED)
        yield "nvidia_smi_ecc_errors_corrected_volatile_total", self._errors(device, _CORRECTED)
        yield from self._rows(device).items()
        for metric, question in _WHOLE:
            yield metric, self._number(question, device)
        found = self._struct(_Fabric, "nvmlDeviceGetGpuFabricInfo", device)
        if found is not None and found.state:
            yield "nvidia_smi_fabric_state", fabric(found.state, found.status == 0)

    def _errors(self, device: Any, kind: int) -> Optional[int]:
        count = ctypes.c_ulonglong()
        asked = (device, ctypes.c_uint(kind), ctypes.c_uint(_VOLATILE))
        return count.value if self._answered("nvmlDeviceGetTotalEccErrors", *[*asked, ctypes.byref(count)]) else None

    def _rows(self, device: Any) -> Dict[str, Optional[float]]:
        _corrected, uncorrected, pending, failed = told = [ctypes.c_uint() for _ in range(4)]
        if not self._answered("nvmlDeviceGetRemappedRows", device, *[ctypes.byref(item) for item in told]):
            return {}
        return {
            "nvidia_smi_remapped_rows_uncorrectable": uncorrected.value,
            "nvidia_smi_remapped_rows_pending": pending.value,
            "nvidia_smi_remapped_rows_failure": failed.value,
        }


def by_library(library: str = nvml.LIBRARY) -> List[Gpu]:
    """Return every GPU that answers; lost GPUs are left out."""
    try:
        source = Health(library)
    except nvml.NvmlError as error:
        raise UnreadableError(f"NVML: {error}") from None
    try:
        return list(_answering(source))
    except nvml.NvmlError as error:
        raise UnreadableError(f"NVML: {error}") from None
    finally:
        source.close()


def _answering(source: Health) -> Iterator[Gpu]:
    for number, (device, refused) in enumerate(source.devices()):
        if refused is None:
            with contextlib.suppress(nvml.NvmlError):
                yield source.gpu(number, device)
