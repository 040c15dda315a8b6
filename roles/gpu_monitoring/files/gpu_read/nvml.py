"""NVIDIA's management library through ctypes: the figures of nvidia-smi, without a process per reading."""

import contextlib
import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

__all__ = ["FIELDS", "LibraryMissingError", "Nvml", "NvmlError"]

LIBRARY = "libnvidia-ml.so.1"
NOT_LOADED, LOST, RESET_NEEDED, NO_FUNCTION = 9, 15, 16, 13
UNINITIALIZED = 1
INSUFFICIENT_SIZE = 7
_GRAVE = (UNINITIALIZED, NOT_LOADED, LOST, RESET_NEEDED, 18)
"""Codes that mean an unusable driver or GPU; any other error only means that one value is unavailable."""
ALL_LINKS = 0xFFFFFFFF
"""The scope that means all NVLinks together."""
FIELDS = {
    "memory_temperature": 82,
    "nvlink_tx": 138,  # KiB of data
    "nvlink_rx": 139,
    "pcie_tx": 197,  # bytes, in 32 bits: on a fast link it overflows many times a second
    "pcie_rx": 198,
    "recovery_action": 230,
}
CLOCK_SM, CLOCK_MEMORY = 1, 2


class LibraryMissingError(Exception):
    """The management library is missing or cannot be loaded."""


class NvmlError(Exception):
    """The library returned the error `code`."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code

    @property
    def grave(self) -> bool:
        """Whether the driver or the GPU is unusable, not just this value unavailable."""
        return self.code in _GRAVE


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Memory2(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_id", ctypes.c_uint),
        ("subsystem", ctypes.c_uint),
        ("address", ctypes.c_char * 32),
    ]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _OldProcess(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


class _Sample(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("time", ctypes.c_ulonglong),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    ]


class _Value(ctypes.Union):
    _fields_ = [
        ("double", ctypes.c_double),
        ("uint", ctypes.c_uint),
        ("ulong", ctypes.c_ulong),
        ("ulonglong", ctypes.c_ulonglong),
        ("longlong", ctypes.c_longlong),
        ("int", ctypes.c_int),
        ("ushort", ctypes.c_ushort),
    ]


class _Field(ctypes.Structure):
    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("time", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_uint),
        ("result", ctypes.c_uint),
        ("value", _Value),
    ]


_KINDS = ("double", "uint", "ulong", "ulonglong", "longlong", "int", "ushort")
_UNKNOWN_MEMORY = 0xFFFFFFFFFFFFFFFF


class Counter(NamedTuple):
    """A field's value; `bits` is the width of the counter, at which it overflows."""

    value: float
    bits: int


class Nvml:
    """The library, loaded and initialised. `device` arguments are what `devices` returned."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise LibraryMissingError(str(error)) from error
        self.doing = ""
        """The pending call, to name what a hanging driver was asked."""
        self._without: Dict[str, bool] = {}
        self._call("nvmlInit_v2")

    def close(self) -> None:
        """Shut the library down; a replaced driver needs a new initialisation."""
        with contextlib.suppress(NvmlError):
            self._call("nvmlShutdown")

    # --- the machine ---------------------------------------------------------------------------------------------

    def driver(self) -> Optional[str]:
        return self._text("nvmlSystemGetDriverVersion")

    def devices(self) -> List[Tuple[Any, Optional[NvmlError]]]:
        """Return (handle, None) of every GPU; (None, error) of one that the driver has lost."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found: List[Tuple[Any, Optional[NvmlError]]] = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            try:
                self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            except NvmlError as error:
                found.append((None, error))
            else:
                found.append((handle, None))
        return found

    # --- one GPU -------------------------------------------------------------------------------------------------

    def name(self, device: Any) -> Optional[str]:
        return self._text("nvmlDeviceGetName", device)

    def uuid(self, device: Any) -> Optional[str]:
        return self._text("nvmlDeviceGetUUID", device)

    def address(self, device: Any) -> Optional[str]:
        """Return the PCI address as the kernel writes it: 0000:18:00.0."""
        told = self._struct(_Pci, "nvmlDeviceGetPciInfo_v3", device)
        text = told.address.decode("ascii", "replace").lower() if told is not None else ""
        return text[-12:] if len(text) > 12 else text or None

    def utilization(self, device: Any) -> Tuple[Optional[int], Optional[int]]:
        """Return the utilisation of the GPU and of its memory in percent; None in MIG mode."""
        told = self._struct(_Utilization, "nvmlDeviceGetUtilizationRates", device)
        return (None, None) if told is None else (told.gpu, told.memory)

    def memory(self, device: Any) -> Tuple[Optional[int], Optional[int]]:
        """Return used and total bytes; as in nvidia-smi, memory reserved by the driver does not count as used."""
        told = _Memory2(version=ctypes.sizeof(_Memory2) | 2 << 24)
        if self._filled(told, "nvmlDeviceGetMemoryInfo_v2", device):
            return told.used, told.total
        older = self._struct(_Memory, "nvmlDeviceGetMemoryInfo", device)
        return (None, None) if older is None else (older.used, older.total)

    def power(self, device: Any) -> Optional[float]:
        """Return watts as nvidia-smi does: since Ampere the average over a second."""
        return _watts(self._number("nvmlDeviceGetPowerUsage", device))

    def power_limit(self, device: Any) -> Optional[float]:
        """Return the enforced limit in watts."""
        return _watts(self._number("nvmlDeviceGetEnforcedPowerLimit", device))

    def temperature(self, device: Any) -> Optional[int]:
        """Return degrees Celsius."""
        return self._number("nvmlDeviceGetTemperature", device, ctypes.c_uint(0))

    def fan(self, device: Any) -> Optional[int]:
        """Return the fan's speed in percent."""
        return self._number("nvmlDeviceGetFanSpeed", device)

    def clock(self, device: Any, which: int) -> Optional[int]:
        """Return a clock in MHz."""
        return self._number("nvmlDeviceGetClockInfo", device, ctypes.c_uint(which))

    def clock_limit(self, device: Any, which: int) -> Optional[int]:
        """Return the highest rate of a clock in MHz."""
        return self._number("nvmlDeviceGetMaxClockInfo", device, ctypes.c_uint(which))

    def throttle(self, device: Any) -> Optional[int]:
        """Return the reasons for reduced clocks, as bits."""
        told = ctypes.c_ulonglong()
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if self._answered(name, device, ctypes.byref(told)):
                return told.value
        return None

    def mig(self, device: Any) -> Optional[bool]:
        """Return whether the GPU is in MIG mode; None without support."""
        now, next_ = ctypes.c_uint(), ctypes.c_uint()
        answered = self._answered("nvmlDeviceGetMigMode", device, ctypes.byref(now), ctypes.byref(next_))
        return bool(now.value) if answered else None

    def pcie_sampled(self, device: Any, receive: bool) -> Optional[float]:
        """Return bytes per second over PCIe, sampled by the driver; each call takes 20 ms."""
        told = self._number("nvmlDeviceGetPcieThroughput", device, ctypes.c_uint(1 if receive else 0))
        return None if told is None else told * 1024.0

    def fields(self, device: Any, names: Sequence[str]) -> Dict[str, Counter]:
        """Return the fields that the driver supports, by their names in FIELDS."""
        asked = (_Field * len(names))()
        for place, name in zip(asked, names):
            place.field = FIELDS[name]
            place.scope = ALL_LINKS if name.startswith("nvlink") else 0
        if not self._answered("nvmlDeviceGetFieldValues", device, ctypes.c_int(len(names)), asked):
            return {}
        found = {}
        for place, name in zip(asked, names):
            if place.result == 0 and place.kind < len(_KINDS):
                kind = _KINDS[place.kind]
                found[name] = Counter(getattr(place.value, kind), 32 if kind in ("uint", "int") else 64)
        return found

    def processes(self, device: Any) -> List[Dict[str, Any]]:
        """Return the processes on a GPU: {"pid", "kind", "memory"}; the kind is C, G or both."""
        found: Dict[int, Dict[str, Any]] = {}
        for kind, name in (("C", "Compute"), ("G", "Graphics")):
            for entry in self._running("nvmlDeviceGet" + name + "RunningProcesses", device):
                memory = None if entry.memory == _UNKNOWN_MEMORY else entry.memory
                known = found.setdefault(entry.pid, {"pid": entry.pid, "kind": "", "memory": None})
                known["kind"] += kind if kind not in known["kind"] else ""
                if memory is not None:
                    known["memory"] = (known["memory"] or 0) + memory if known["kind"] == kind else memory
        return sorted(found.values(), key=lambda process: int(process["pid"]))

    def process_utilization(self, device: Any, since: int) -> Tuple[Dict[int, int], int]:
        """Return ({pid: percent of the GPU's time since a driver's time stamp}, the newest time stamp)."""
        count = ctypes.c_uint(0)
        name = "nvmlDeviceGetProcessUtilization"
        code = self._code(name, device, None, ctypes.byref(count), ctypes.c_ulonglong(since))
        if code != INSUFFICIENT_SIZE or not count.value:
            return {}, since
        samples = (_Sample * count.value)()
        if self._code(name, device, samples, ctypes.byref(count), ctypes.c_ulonglong(since)) != 0:
            return {}, since
        newest = since
        shares: Dict[int, List[int]] = {}
        for sample in samples[: count.value]:
            if sample.pid and sample.sm <= 100:
                shares.setdefault(sample.pid, []).append(sample.sm)
                newest = max(newest, sample.time)
        return {pid: sum(values) // len(values) for pid, values in shares.items()}, newest

    # --- calling -------------------------------------------------------------------------------------------------

    def _running(self, stem: str, device: Any) -> List[Any]:
        """Return the running processes, by the newest version of the call that the driver has."""
        for suffix, shape in (("_v3", _Process), ("_v2", _Process), ("", _OldProcess)):
            if self._without.get(stem + suffix):
                continue
            room = 32
            for _try in range(5):
                count, entries = ctypes.c_uint(room), (shape * room)()
                code = self._code(stem + suffix, device, ctypes.byref(count), entries)
                if code == 0:
                    return list(entries[: count.value])
                if code != INSUFFICIENT_SIZE:
                    break
                room = max(room * 2, count.value + 8)  # processes may have started since
            if code != NO_FUNCTION:
                return []
        return []

    def _code(self, name: str, *arguments: Any) -> int:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            self._without[name] = True
            return NO_FUNCTION
        self.doing = name
        code = int(function(*arguments))
        self.doing = ""
        return code

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._code(name, *arguments)
        if code != 0:
            raise NvmlError(code, self._words(code))

    def _answered(self, name: str, *arguments: Any) -> bool:
        """Call the function; return False if this driver or GPU does not support it."""
        if self._without.get(name):
            return False
        code = self._code(name, *arguments)
        if code in _GRAVE:
            raise NvmlError(code, self._words(code))
        return code == 0

    def _words(self, code: int) -> str:
        try:
            function = self._library.nvmlErrorString
        except AttributeError:
            return f"error {code}"
        function.restype = ctypes.c_char_p
        told = function(ctypes.c_uint(code))
        return told.decode("ascii", "replace") if told else f"error {code}"

    def _filled(self, target: Any, name: str, *arguments: Any) -> bool:
        return self._answered(name, *arguments, ctypes.byref(target))

    def _struct(self, shape: Type[Any], name: str, *arguments: Any) -> Any:
        target = shape()
        return target if self._filled(target, name, *arguments) else None

    def _number(self, name: str, *arguments: Any) -> Optional[int]:
        target = ctypes.c_uint()
        return target.value if self._filled(target, name, *arguments) else None

    def _text(self, name: str, *arguments: Any) -> Optional[str]:
        target = ctypes.create_string_buffer(128)
        answered = self._answered(name, *arguments, target, ctypes.c_uint(len(target)))
        return target.value.decode("utf-8", "replace") if answered else None


def _watts(milliwatts: Optional[int]) -> Optional[float]:
    return None if milliwatts is None else milliwatts / 1000.0
