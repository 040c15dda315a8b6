"""Read Xids from the kernel's log."""

import os
import re
from typing import Dict, List, Optional, Sequence, Tuple

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+)(?:\.\d)?\): (\d+)")
_LONGEST = 8192
"""Maximum length of a record in /dev/kmsg."""
Seen = Dict[Tuple[str, str], float]


def records(path: str = "/dev/kmsg") -> Optional[List[str]]:
    """Return the kernel log's records of Xids; None if the log may not be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    found: List[str] = []
    try:
        while True:
            try:
                record = os.read(handle, _LONGEST)
            except BrokenPipeError:
                continue  # the record was overwritten meanwhile: read the next one
            except OSError:
                break
            if not record:
                break
            if b"NVRM: Xid" in record:
                found.append(record.decode("utf-8", "replace"))
    finally:
        os.close(handle)
    return found


def xids(told: Sequence[str], booted: float) -> Seen:
    """Return {(PCI address, Xid): time of the last report}."""
    found: Seen = {}
    for record in told:
        head, _, text = record.partition(";")
        match = _XID.search(text)
        stamp = head.split(",")
        if match and len(stamp) > 2 and stamp[2].isdigit():
            found[match.group(1).lower(), match.group(2)] = float(int(booted + int(stamp[2]) / 1e6))
    return found


def booted() -> float:
    with open("/proc/stat", encoding="utf-8", errors="replace") as stream:
        return next((float(line.split()[1]) for line in stream if line.startswith("btime ")), 0.0)
