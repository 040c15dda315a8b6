"""NVLinks: all are up at full rate, without errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Finding, Item, Verdict
from gpusetup.verify.expected import nvlink_of, setting
from gpusetup.verify.registry import check, from_items, took
from gpusetup.verify.smi import nvlink_errors

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("nvlink.links", "All NVLinks are up", needs=("gpu", "smi"), seconds=took("nvlink_status"))
def links_up(machine: Machine) -> Finding:
    """Every NVLink is up and runs at the rate of its generation.

    One link that stayed down costs its share of every collective, and NVSwitch systems may refuse to start the fabric.
    How many links there should be follows from the product (data file), else from the other GPUs of the machine; the
    rate from the other links.

    To do: look for Xid 74 and `nvlink -e` counters; reset the GPU; reseat the baseboard; exchange the GPU.
    """
    switched_off = "NvLinkDisable: 1" in (machine.quick.get("module_params") or "")
    if not machine.nvlinks:
        known = [gpu for gpu in machine.gpus if nvlink_of(gpu.device_id)]
        if switched_off:
            verdict: Verdict = "warn" if len(machine.gpus) > 1 else "skip"
            return Finding(verdict, "NVLink is switched off by the module option NVreg_NvLinkDisable=1")
        if known and len(machine.gpus) > 1:
            return Finding(
                "fail", f"{known[0].name} has NVLink, but nvidia-smi shows no link", 0, nvlink_of(known[0].device_id)
            )
        return Finding("unsupported", "no NVLink here")
    if all(link.rate is None for link in machine.nvlinks) and not any(nvlink_of(gpu.device_id) for gpu in machine.gpus):
        return Finding("unsupported", "the GPUs have NVLink connectors, but no bridge")
    most = max(machine.nvlink_bandwidth(gpu.index)[0] for gpu in machine.gpus)
    usual = max((link.rate for link in machine.nvlinks if link.rate), default=0.0)
    items = []
    for gpu in machine.gpus:
        links = [link for link in machine.nvlinks if link.gpu == gpu.index]
        up = [link for link in links if link.rate is not None]
        expected = nvlink_of(gpu.device_id) or max(most, len(links))
        slow = [link.link for link in up if link.rate is not None and link.rate < 0.99 * usual]
        if len(up) < expected:
            down = [str(link.link) for link in links if link.rate is None]
            where = f" (down: {', '.join(down[:8])})" if down else ""
            items.append(
                Item(gpu.label, "fail", f"{len(up)} of {expected} links are up{where}", len(up), expected, expected)
            )
        elif slow:
            text = f"links {', '.join(map(str, slow))} run below {usual:g} GB/s"
            items.append(Item(gpu.label, "fail", text, len(up) - len(slow), expected, expected))
        else:
            items.append(Item(gpu.label, "pass", measured=len(up), expected=expected, limit=expected))
    return from_items(items, f"{counted(most, 'link')} at {usual:.1f} GB/s each way on every GPU", unit="links")


@check("nvlink.errors", "NVLink without errors", needs=("gpu", "smi"), seconds=took("nvlink_errors"))
def links_without_errors(machine: Machine) -> Finding:
    """NVLink's error counters are low.

    Replays are repaired on the wire and cost time; recoveries interrupt traffic. A few after boot are usual; many
    mean that a link is failing.

    To do: watch whether they grow (`nvidia-smi nvlink -e`); reset; exchange cable, bridge or board.
    """
    counters = nvlink_errors(machine.command("nvlink_errors").get("stdout", ""))
    if not counters:
        return Finding("unsupported", "no NVLink counters here")
    limit = int(setting("nvlink_errors_warn"))
    items = []
    for gpu in machine.gpus:
        mine = {link: sum(values.values()) for (index, link), values in counters.items() if index == gpu.index}
        total = sum(mine.values())
        recoveries = sum(
            values.get("Recovery Errors", 0) for (index, _), values in counters.items() if index == gpu.index
        )
        worst_link = max(mine, key=lambda link: mine[link], default=0)
        if recoveries or total > limit:
            items.append(Item(gpu.label, "warn", f"{total} errors, most on link {worst_link}", total, 0, limit))
        else:
            items.append(Item(gpu.label, "pass", measured=total, expected=0, limit=limit))
    return from_items(items, "no errors counted", unit="errors")
