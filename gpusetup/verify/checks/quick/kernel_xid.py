"""The kernel log of this boot holds no Xid that means trouble.

An Xid is how the driver reports an error of a GPU. Each number is looked up in a catalogue with its meaning and its
gravity: hardware and driver errors fail, errors that applications cause (31, 13, 43, 45) warn. A log that cannot be
read is a skip. What gpusetup settled by a reset of that GPU does not count.

To do: what the catalogue says; the numbers and their sources are in the table below. `gpusetup doctor --apply` does
what a reset or a reboot settles, after asking.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.recovery.since import Reset, settled
from gpusetup.recovery.table import of_xid
from gpusetup.recovery.xids import meaning
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+)")
FELL_OFF = re.compile(r"NVRM: .*GPU.*(?:has )?fallen off the bus", re.IGNORECASE)


@check("kernel.xid", "No Xid in the kernel log", needs=("gpu",), seconds=lambda machine: machine.took("kernel_log"))
def judge(machine: Machine) -> Finding:
    """Look every Xid of this boot up."""
    log = machine.collected("kernel_log")
    if log.get("error") or log.get("source") is None:
        return Finding("skip", f"not checked: {log.get('error') or 'no kernel log'}")
    seen: Counter[tuple[str, int]] = Counter()
    resets = {gpu: Reset(when["uptime"], when["time"]) for gpu, when in (log.get("resets") or {}).items()}
    for line in log.get("lines", []):
        if settled(line, resets):
            continue
        if found := XID.search(line):
            seen[found.group(1).lower(), int(found.group(2))] += 1
        elif FELL_OFF.search(line):
            seen["", 79] += 1
    items = []
    for (address, number), times in sorted(seen.items(), key=lambda entry: entry[0][1]):
        known, recovery = meaning(number), of_xid(number)
        often = f", {times} times" if times > 1 else ""
        needs = f"; it needs {recovery.text}" if recovery.steps else ""
        items.append(
            Item(
                subject=address or "PCI",
                verdict=known.verdict,
                text=f"Xid {number}{often}: {known.text}; {known.action}{needs}",
                measured=number,
            )
        )
    if not items:
        return Finding("pass", f"none since boot ({log['source']})", 0, 0)
    return from_items(items, "none that indicates a problem")
