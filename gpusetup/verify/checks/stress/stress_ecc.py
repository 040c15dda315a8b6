"""Load brought no new memory error, row remapping or Xid.

The counters and the kernel log after the load are compared with those before it.

To do: exchange the GPU that counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.checks.quick.kernel_xid import XID
from gpusetup.verify.checks.stress import _burn
from gpusetup.verify.registry import check, from_items
from gpusetup.verify.smi import parse_gpus

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine
    from gpusetup.verify.smi import SmiGpu

PATHS = (
    "ecc_errors/volatile/dram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable_parity",
    "ecc_errors/volatile/sram_uncorrectable_secded",
    "ecc_errors/volatile/dram_correctable",
    "ecc_errors/volatile/sram_correctable",
    "remapped_rows/remapped_row_unc",
    "remapped_rows/remapped_row_corr",
)


def _counts(gpu: SmiGpu) -> dict[str, float]:
    return {path: gpu.number(path) or 0 for path in PATHS}


@check("stress.ecc", "No memory error under load", needs=("gpu", "python", "context"), seconds=_burn.seconds)
def judge(machine: Machine) -> Finding:
    """Compare counters and log before and after."""
    missing = _burn.absent(machine)
    if missing is not None:
        return missing
    after = machine.sections["stress"]["after"]
    later = {gpu.bus_id: gpu for gpu in parse_gpus((after.get("smi") or {}).get("stdout", ""))}
    items = []
    for gpu in machine.gpus:
        if gpu.bus_id not in later:
            items.append(Item(subject=gpu.label, verdict="fail", text="disappeared from nvidia-smi under load"))
            continue
        grown = {
            path.rsplit("/", 1)[1]: later_count - count
            for (path, count), later_count in zip(
                _counts(gpu).items(), _counts(later[gpu.bus_id]).values(), strict=True
            )
            if later_count > count
        }
        grave = any("unc" in name for name in grown)
        if grown:
            items.append(
                Item(
                    subject=gpu.label,
                    verdict="fail" if grave else "warn",
                    text="increased under load: "
                    + ", ".join(f"{name} by {number:.0f}" for name, number in grown.items()),
                    measured=sum(grown.values()),
                    expected=0,
                )
            )
        else:
            items.append(Item(subject=gpu.label, verdict="pass", measured=0, expected=0))
    before_lines = {line for line in machine.collected("kernel_log").get("lines", []) if XID.search(line)}
    fresh = [
        line
        for line in (after.get("kernel_log") or {}).get("lines", [])
        if XID.search(line) and line not in before_lines
    ]
    if fresh:
        items.append(
            Item(
                subject="kernel log",
                verdict="fail",
                text=f"{len(fresh)} new Xid lines: {fresh[0][-100:]}",
                measured=len(fresh),
                expected=0,
            )
        )
    return from_items(items, "no counter increased, no new Xid")
