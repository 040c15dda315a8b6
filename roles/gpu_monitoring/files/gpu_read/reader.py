"""Read all GPUs of a host from the management library or nvidia-smi, with rates since the previous reading."""

import time
from typing import Any, Dict, List, Optional, Tuple, Union

from . import nvml, smi
from .processes import Processes

__all__ = ["THROTTLE", "Reader", "throttle_reasons"]

THROTTLE = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Reasons for reduced clocks: nvidia-smi's names of the bits."""
_FIELDS = ("memory_temperature", "nvlink_tx", "nvlink_rx")
_PCIE = ("pcie_tx", "pcie_rx")
_WINDOW = 0.02
"""Seconds over which PCIe traffic is counted: on no link can a 32-bit counter overflow twice in it."""
_FASTEST = 2e12
"""Bytes per second that no link reaches: a higher rate comes from a reset counter and is dropped."""


def throttle_reasons(bits: Optional[int]) -> Optional[List[str]]:
    """Return the names of the bits that are set; None if the driver does not report them."""
    return None if bits is None else [name for bit, name in THROTTLE.items() if bits & bit]


class Reader:
    """Reads repeatedly. `doing` names the pending call: there a hanging driver hangs."""

    def __init__(self, library: str = nvml.LIBRARY, processes: Optional[Processes] = None) -> None:
        self.library = library
        self.processes = processes or Processes()
        self.source: Union[nvml.Nvml, smi.Smi, None] = None
        self.why_not_library = ""
        self._counters: Dict[Tuple[str, str], Tuple[float, float]] = {}
        self._stamps: Dict[str, int] = {}
        self._fixed: Dict[int, Dict[str, Any]] = {}

    @property
    def doing(self) -> str:
        return self.source.doing if self.source is not None else ""

    def read(self) -> Dict[str, Any]:
        """Return {"time", "source", "driver", "gpus"}, with "error" if the driver does not answer."""
        document: Dict[str, Any] = {"time": round(time.time(), 3), "source": None, "driver": None, "gpus": []}
        try:
            source = self._open()
            document["source"] = "nvml" if isinstance(source, nvml.Nvml) else "nvidia-smi"
            gpus = self._from_library(source) if isinstance(source, nvml.Nvml) else self._from_smi(source)
        except nvml.NvmlError as error:
            self._let_go()
            return dict(document, error=f"NVML: {error}")
        except smi.SmiError as error:
            self._let_go()
            return dict(document, error=f"{error}; {self.why_not_library}" if self.why_not_library else str(error))
        driver = source.driver() if isinstance(source, nvml.Nvml) else next((gpu["driver"] for gpu in gpus), None)
        for gpu in gpus:
            gpu.pop("driver", None)
            gpu["throttle"] = throttle_reasons(gpu.pop("reasons", None))
            for process in gpu["processes"]:
                process.update(self.processes.describe(process["pid"]))
        self.processes.forget()
        return dict(document, driver=driver, gpus=gpus)

    def _open(self) -> Union[nvml.Nvml, smi.Smi]:
        if self.source is None:
            try:
                self.source = nvml.Nvml(self.library)
            except nvml.LibraryMissingError as error:
                self.why_not_library = str(error)
                self.source = smi.Smi()
        return self.source

    def _let_go(self) -> None:
        """Start from scratch at the next reading: the driver may be replaced, a GPU reset."""
        if isinstance(self.source, nvml.Nvml):
            self.source.close()
        self.source = None
        self._fixed = {}

    def _from_smi(self, source: smi.Smi) -> List[Dict[str, Any]]:
        empty = dict.fromkeys(("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx"))
        return [dict(gpu, **empty) for gpu in source.read()]

    def _from_library(self, source: nvml.Nvml) -> List[Dict[str, Any]]:
        gpus = []
        devices = source.devices()
        pcie = _pcie(source, {index: device for index, (device, lost) in enumerate(devices) if lost is None})
        for index, (device, refused) in enumerate(devices):
            lost = refused
            if lost is None:
                try:
                    gpus.append(dict(self._gpu(source, index, device), **pcie.get(index, {})))
                    continue
                except nvml.NvmlError as error:
                    if error.code == nvml.UNINITIALIZED:
                        raise
                    lost = error
            fixed = self._fixed.get(index, {"index": index, "uuid": None, "address": None, "name": None})
            gpus.append(dict(fixed, error=str(lost), processes=[]))
        return gpus

    def _gpu(self, source: nvml.Nvml, index: int, device: Any) -> Dict[str, Any]:
        fixed = self._fixed.get(index)
        if fixed is None:
            fixed = {
                "index": index,
                "uuid": source.uuid(device),
                "address": source.address(device),
                "name": source.name(device),
            }
            self._fixed[index] = fixed
        busy, memory_busy = source.utilization(device)
        used, total = source.memory(device)
        fields = source.fields(device, _FIELDS)
        temperature = fields.get("memory_temperature")
        gpu = dict(
            fixed,
            utilization=busy,
            memory_utilization=memory_busy,
            memory_used=used,
            memory_total=total,
            power=source.power(device),
            power_limit=source.power_limit(device),
            temperature=source.temperature(device),
            memory_temperature=int(temperature.value) if temperature and temperature.value else None,
            fan=source.fan(device),
            clock=source.clock(device, nvml.CLOCK_SM),
            clock_limit=source.clock_limit(device, nvml.CLOCK_SM),
            memory_clock=source.clock(device, nvml.CLOCK_MEMORY),
            reasons=source.throttle(device),
            mig=source.mig(device),
            processes=self._programs(source, device, str(fixed["uuid"])),
        )
        now = time.monotonic()
        for name in ("nvlink_tx", "nvlink_rx"):
            counter = fields.get(name)
            gpu[name] = None if counter is None else self._rate((str(fixed["uuid"]), name), counter.value * 1024, now)
        return gpu

    def _programs(self, source: nvml.Nvml, device: Any, uuid: str) -> List[Dict[str, Any]]:
        running = source.processes(device)
        if running:
            shares, self._stamps[uuid] = source.process_utilization(device, self._stamps.get(uuid, 0))
            for process in running:
                process["utilization"] = shares.get(process["pid"])
        return running

    def _rate(self, key: Tuple[str, str], value: float, now: float) -> Optional[float]:
        before = self._counters.get(key)
        self._counters[key] = (now, value)
        if before is None or now <= before[0]:
            return None
        rate = (value - before[1]) / (now - before[0])
        return round(rate) if 0 <= rate < _FASTEST else None


def _pcie(source: nvml.Nvml, devices: Dict[int, Any]) -> Dict[int, Dict[str, Optional[float]]]:
    """Return bytes per second over PCIe for all GPUs, each counted over the same short window, as by nvidia-smi."""
    begun = {index: (time.monotonic(), _counted(source, device)) for index, device in devices.items()}
    rates = {}
    for index, (then, before) in begun.items():
        if not before:
            rates[index] = {name: _sampled(source, devices[index], name) for name in _PCIE}
            continue
        time.sleep(max(0.0, then + _WINDOW - time.monotonic()))
        after, seconds = _counted(source, devices[index]), time.monotonic() - then
        rates[index] = {name: _moved(before.get(name), after.get(name), seconds) for name in _PCIE}
    return rates


def _counted(source: nvml.Nvml, device: Any) -> Dict[str, nvml.Counter]:
    try:
        return source.fields(device, _PCIE)
    except nvml.NvmlError:
        return {}  # a lost GPU is reported when its other values are read


def _sampled(source: nvml.Nvml, device: Any, name: str) -> Optional[float]:
    try:
        return source.pcie_sampled(device, name == "pcie_rx")
    except nvml.NvmlError:
        return None


def _moved(before: Optional[nvml.Counter], after: Optional[nvml.Counter], seconds: float) -> Optional[float]:
    if before is None or after is None or seconds <= 0:
        return None
    moved = after.value - before.value
    if moved < 0 and after.bits == 32:
        moved += float(1 << 32)
    return round(moved / seconds) if moved >= 0 else None
