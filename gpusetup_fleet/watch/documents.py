"""The live view for programs: a document for each moment, and a CSV file that survives an interrupted write."""

import csv
import fcntl
import io
import os
import stat
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from msgspec import UNSET, structs

from gpusetup.errors import BadInputError
from gpusetup_fleet.model.watch import GpuNow, Stuck, Watch, WatchedHost
from gpusetup_fleet.watch.figures import plain
from gpusetup_fleet.watch.fleet import Link

_MIB = 1 << 20
COLUMNS = (
    "time", "host", "state", "gpu", "uuid", "address", "name", "utilization_percent", "memory_utilization_percent",
    "memory_used_mib", "memory_total_mib", "power_watts", "power_limit_watts", "temperature_celsius",
    "memory_temperature_celsius", "fan_percent", "clock_mhz", "clock_limit_mhz", "memory_clock_mhz", "throttle",
    "pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second", "nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second",
    "programs", "users", "error",
)  # fmt: skip


def document(links: Iterable[Link], shown: Iterable[Link], now: float) -> Watch:
    """Return the state and last figures of the shown hosts; a hidden one that does not answer counts too."""
    live = all(link.state == "live" for link in links)
    return Watch(ok=live, time=_stamp(now), hosts={link.host: _host(link) for link in shown})


def _host(link: Link) -> WatchedHost:
    look, stuck = link.look, link.stuck
    told = WatchedHost(
        state=link.state,
        age=None if link.age is None else round(link.age, 1),
        reason=link.reason or UNSET,
        stuck=UNSET if stuck is None else Stuck(seconds=stuck.stuck or 0.0, asked=stuck.asked),
    )
    if look is None:
        return told
    return structs.replace(
        told, error=look.error or UNSET, time=_stamp(look.time), source=look.source, driver=look.driver, gpus=look.gpus
    )


def rows(link: Link, now: float) -> list[tuple[Any, ...]]:
    """Return a row for each GPU of a host's last figures; one row with the reason if the host sends none."""
    look = link.look
    if look is None or link.state != "live" or not look.gpus:
        error = link.reason or (look.error if look is not None else "")
        if link.stuck is not None:
            error = f"the driver is silent for {link.stuck.stuck:.0f} s"
        blank = ("",) * (len(COLUMNS) - 4)
        return [(_stamp(now), link.host, link.state, *blank, plain(error))]
    return [(_stamp(look.time), link.host, link.state, *_gpu(gpu)) for gpu in look.gpus]


def _gpu(gpu: GpuNow) -> tuple[Any, ...]:
    users = dict.fromkeys(program.user for program in gpu.processes if program.user)
    return (
        gpu.index, gpu.uuid, gpu.address, plain(gpu.name), gpu.utilization, gpu.memory_utilization,
        _mib(gpu.memory_used), _mib(gpu.memory_total), gpu.power, gpu.power_limit, gpu.temperature,
        gpu.memory_temperature, gpu.fan, gpu.clock, gpu.clock_limit, gpu.memory_clock,
        "+".join(gpu.throttle or ()), gpu.pcie_tx, gpu.pcie_rx, gpu.nvlink_tx, gpu.nvlink_rx,
        len(gpu.processes), plain(" ".join(users)), plain(gpu.error),
    )  # fmt: skip


def _mib(value: int | None) -> int | None:
    return None if value is None else round(value / _MIB)


def _stamp(seconds: float) -> str:
    try:
        then = datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, ValueError, OSError):  # a host's clock can be wrong
        return ""
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def csv_lines(lines: Iterable[Sequence[Any]]) -> str:
    """Return lines of CSV."""
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows(lines)
    return target.getvalue()


class CsvFile:
    """A CSV file with one header and whole lines only, even if the previous writer was interrupted."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise BadInputError(
                "GS-103", f"cannot write {path}: {error.strerror}", path=path, hint="give another file with --csv"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            if not isinstance(error, BlockingIOError):
                raise BadInputError("GS-103", f"cannot reserve {path}: {error.strerror}", path=path) from error
            raise BadInputError("GS-923", f"another `gpusetup watch` is writing to {path}", path=path) from error
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            os.close(self._file)
            raise BadInputError("GS-103", f"{path} is not a file", path=path, hint="--csv - writes to standard output")
        self._prepare()

    def close(self) -> None:
        """Close the file, and free it for another writer."""
        os.close(self._file)

    def add(self, lines: Iterable[Sequence[Any]]) -> None:
        """Append rows, all of them or none."""
        self._append(csv_lines(lines).encode())

    def _prepare(self) -> None:
        header = csv_lines([COLUMNS]).encode()
        length = os.fstat(self._file).st_size
        begin = os.pread(self._file, len(header), 0)
        if header.startswith(begin) and len(begin) < len(header):  # new, or cut within its first line
            os.ftruncate(self._file, 0)
            self._append(header)
            return
        if begin != header:
            raise BadInputError(
                "GS-924",
                f"{self.path} exists and does not begin with the header of `gpusetup watch --csv`",
                path=self.path,
            )
        os.ftruncate(self._file, self._whole(length))

    def _whole(self, length: int) -> int:
        """Return the position behind the last whole line."""
        end = length
        while end > 0:
            start = max(0, end - 65536)
            place = os.pread(self._file, end - start, start).rfind(b"\n")
            if place >= 0:
                return start + place + 1
            end = start
        return 0

    def _append(self, data: bytes) -> None:
        before = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except BaseException:
            os.ftruncate(self._file, before)
            raise
