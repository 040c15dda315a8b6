"""The times of kernel log lines: whether a reset of the GPU came later, and which lines are new."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


GPU = re.compile(r"\b(?:0000)?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.\d)?)\b")
"""A PCI address as the kernel and the driver write it."""
_SINCE_BOOT = re.compile(r"^\[\s*(\d+\.\d+)\]")
_BY_CLOCK = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d):?(\d\d)?")


class Reset(NamedTuple):
    """When a GPU was reset, in seconds since the boot and since 1970."""

    uptime: float
    time: float


def clock_of(line: str) -> float | None:
    """Return the time at the beginning of a line; None without one."""
    found = _BY_CLOCK.match(line)
    if found is None:
        return None
    zone = "+00:00" if found[2] == "Z" else f"{found[2]}:{found[3] or '00'}"
    return dt.datetime.fromisoformat(found[1] + zone).timestamp()


def settled(line: str, resets: Mapping[str, Reset]) -> bool:
    """Return whether a line reports an Xid of a GPU that was reset afterwards."""
    address = GPU.search(line) if "Xid" in line else None
    if address is None:
        return False
    reset = next((when for gpu, when in resets.items() if gpu.startswith(address[1].lower())), None)
    if reset is None:
        return False
    if since := _SINCE_BOOT.match(line):
        return float(since[1]) <= reset.uptime
    clock = clock_of(line)
    return clock is not None and clock <= reset.time


def newer_than(document: dict[str, Any], moment: float) -> dict[str, Any]:
    """Return the observations without kernel log lines up to a time; lines without a time stay."""
    quick = document.get("quick") or {}
    log = quick.get("kernel_log")
    if not moment or not isinstance(log, dict):
        return document
    lines = [line for line in log.get("lines") or () if (clock_of(line) or moment + 1) > moment]
    return {**document, "quick": {**quick, "kernel_log": {**log, "lines": lines}}}
