"""The NVLink fabric: links are up, the GPUs joined it, fabric manager runs, the IMEX domain is complete."""

import json
import re
from collections.abc import Iterator
from typing import Any

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Finding, Item, Verdict
from gpusetup.verify.expected import nvlink_of, product, setting
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check, from_items
from gpusetup.verify.smi import SmiGpu, nvlink_errors


@check("fabric.state", "The NVSwitch fabric is up", needs=("gpu", "smi"), took="smi facts")
def fabric_state(machine: Machine) -> Finding:
    """Where NVSwitches join the GPUs, the fabric is up: state Completed, status Success on every GPU.

    Without it nvidia-smi looks healthy and every CUDA program ends with error 802, `system not yet initialized`. The
    status counts once the state is Completed. A virtual machine with GPUs but without the switches shows no state: its
    host manages the fabric, and the check is skipped.

    To do: `systemctl status nvidia-fabricmanager`; it must have the driver's exact version (see fabric.manager).
    """
    stated = [gpu for gpu in machine.gpus if gpu.text("fabric/state")]
    if not stated:
        if machine.nvswitch:
            return Finding(
                "fail",
                "this machine has NVSwitches, but no GPU reports a fabric state: fabric manager is missing or stopped",
            )
        known = product(machine.gpus[0].device_id)
        if known is not None and known.nvswitch and len(machine.gpus) > 1:
            return Finding("skip", "no NVSwitch is visible here: another machine manages the fabric")
        return Finding("unsupported", "no NVSwitch fabric here")
    items = [_joined(gpu) for gpu in stated]
    for gpu in machine.gpus:
        known = product(gpu.device_id)
        if gpu not in stated and known is not None and known.nvswitch:
            items.append(Item(gpu.label, "warn", "reports no fabric state, unlike other GPUs here", None, "Completed"))
    return from_items(items, "Completed, Success on every GPU")


def _joined(gpu: SmiGpu) -> Item:
    state, status = gpu.text("fabric/state"), gpu.text("fabric/status")
    if state != "Completed":
        return Item(gpu.label, "fail", f"fabric is {state}: CUDA fails with error 802", state, "Completed")
    if status != "Success":
        return Item(gpu.label, "fail", f"fabric completed with {status}", status, "Success")
    health = {
        name: value
        for name, value in gpu.children("fabric/health").items()
        if value in ("Unhealthy", "Degraded", "True")
    }
    if health:
        named = ", ".join(f"{name} {value}" for name, value in health.items())
        return Item(gpu.label, "warn", f"fabric health: {named}", named)
    return Item(gpu.label, "pass", measured=state, expected="Completed")


@check("fabric.manager", "Fabric manager fits the driver", needs=("gpu",), took="fabric_manager facts")
def fabric_manager(machine: Machine) -> Finding:
    """Fabric manager runs where NVSwitches are, and has the driver's exact version.

    One patch release apart, it does not work with the driver, and the fabric stays down. On boards without NVSwitch the
    service fails to start; that is normal.

    To do: install `nvidia-fabricmanager` of the driver's full version, hold both, `systemctl enable --now` it.
    """
    answer = machine.command("fabric_manager")
    match = re.search(r"(\d+\.\d+(?:\.\d+)?)", answer.get("stdout", ""))
    version = match.group(1) if match else None
    unit = machine.service("fabricmanager")
    installed = version is not None or unit is not None
    if not machine.nvswitch:
        if any(gpu.text("fabric/state") for gpu in machine.gpus):
            return Finding("unsupported", "another machine manages the fabric", version)
        note = "; fabric manager is installed but not needed" if installed else ""
        return Finding("unsupported", f"no NVSwitch here{note}", version)
    if not installed:
        return Finding(
            "fail", "this machine has NVSwitches, but fabric manager is not installed", None, machine.module_version
        )
    if unit is None:
        return Finding("fail", "fabric manager is installed without its service", version, machine.module_version)
    if version and machine.module_version and version != machine.module_version:
        return Finding(
            "fail", f"fabric manager is {version}, the driver {machine.module_version}", version, machine.module_version
        )
    if unit["active"] != "active":
        state = unit["active"] or "not known to systemd"
        return Finding("fail", f"{unit['unit']} is {state}", version, machine.module_version)
    if unit["enabled"] not in (None, "enabled", "static"):
        return Finding(
            "warn",
            f"is running, but is {unit['enabled']}: it will not start at the next boot",
            version,
            machine.module_version,
        )
    return Finding("pass", f"{version or 'version unknown'}, active", version, machine.module_version)


_CHANNELS = "/dev/nvidia-caps-imex-channels/"


@check("fabric.imex", "The IMEX domain is up", needs=("gpu",), took="imex facts")
def fabric_imex(machine: Machine) -> Finding:
    """Where NVLink reaches over several machines, IMEX is up on all of them, and programs have a channel.

    In `nvidia-imex-ctl -N -j` the domain must be UP, every machine READY, connected to every other one, and of the
    driver's exact version. One machine that is missing in one list of nodes keeps the domain down. Machines whose
    NVLinks do not leave them have no IMEX: unsupported, not passed.

    To do: the same `gpusetup_imex` on every machine, then `gpusetup apply`; `journalctl -u nvidia-imex`; the ports
    50000 and 50005 between the machines.
    """
    unit, wanted = machine.service("imex"), machine.wanted.imex
    if unit is None and not wanted:
        return Finding("unsupported", "no IMEX here")
    if unit is None:
        return Finding("fail", "gpusetup_imex was applied, but nvidia-imex is not installed")
    if unit["active"] != "active":
        if not wanted:
            return Finding("unsupported", "nvidia-imex is installed and does not run; no setting needs it")
        return Finding("fail", f"{unit['unit']} is {unit['active'] or 'not known to systemd'}")
    domain = _domain(machine)
    if domain is None:
        answer = machine.command("imex")
        why = (answer.get("stderr") or answer.get("error") or "no JSON").strip()[:160]
        return Finding("skip", f"nvidia-imex-ctl reports nothing about the domain: {why}")
    items = [_node(node, machine.module_version) for node in domain["nodes"]]
    hosts = {str(node.get("host")) for node in domain["nodes"]} | {
        str(node.get("hostName")) for node in domain["nodes"]
    }
    items += [Item(node, "fail", "is in gpusetup_imex, and not in this domain") for node in wanted if node not in hosts]
    if not any(str(file.get("path", "")).startswith(_CHANNELS) for file in _files(machine)):
        text = "there is no channel: programs cannot share memory with other machines"
        items.append(Item("channels", "fail", text))
    if domain["status"] != "UP":
        grave = [item for item in items if item.verdict == "fail"]
        named = "; ".join(f"{item.subject} {item.text}" for item in grave[:3])
        text = f"the domain is {domain['status']}" + (f": {named}" if named else "")
        return Finding("fail", text, domain["status"], "UP", items=tuple(items))
    return from_items(items, f"UP, {len(domain['nodes'])} machines")


def _domain(machine: Machine) -> dict[str, Any] | None:
    """Return the domain's status and its machines, ordered by number; None if nvidia-imex-ctl printed neither."""
    try:
        told = json.loads(machine.command("imex").get("stdout", ""))
        numbered = sorted(told["nodes"].items(), key=lambda item: int(item[0]))
        nodes = [dict(node) for _number, node in numbered]
        return {"status": str(told["status"]), "nodes": nodes}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _files(machine: Machine) -> Iterator[dict[str, Any]]:
    found = machine.collected("device_files").get("files")
    yield from found if isinstance(found, list) else ()


def _node(node: dict[str, Any], driver: str | None) -> Item:
    subject, status = str(node.get("host") or node.get("hostName")), str(node.get("status"))
    version = str(node.get("version") or "")
    if status != "READY":
        return Item(subject, "fail", f"is {status}", status, "READY")
    connections = node.get("connections")
    others = [dict(item) for item in connections.values()] if isinstance(connections, dict) else []
    cut = [str(item.get("host")) for item in others if item.get("status") != "CONNECTED"]
    if cut:
        return Item(subject, "fail", f"has no connection to {', '.join(cut[:4])}")
    if driver and version and version[:1].isdigit() and not f"{driver}.".startswith(f"{version}."):
        text = f"runs IMEX {version}, and the driver here is {driver}"
        return Item(subject, "fail", text, version, driver)
    return Item(subject, "pass", measured=status)


@check("nvlink.links", "All NVLinks are up", needs=("gpu", "smi"), took="nvlink_status")
def links_up(machine: Machine) -> Finding:
    """Every NVLink is up and runs at the rate of its generation.

    One link that stayed down costs its share of every collective, and NVSwitch systems may refuse to start the fabric.
    How many links there should be follows from the product (data file), else from the other GPUs of the machine; the
    rate from the other links.

    To do: look for Xid 74 and `nvlink -e` counters; reset the GPU; reseat the baseboard; exchange the GPU.
    """
    if machine.command("nvlink_status").get("error"):
        return Finding("skip", "not checked: nvidia-smi did not list the links")
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


@check("nvlink.errors", "NVLink without errors", needs=("gpu", "smi"), took="nvlink_errors")
def links_without_errors(machine: Machine) -> Finding:
    """NVLink's error counters are low.

    Replays are repaired on the wire and cost time; recoveries interrupt traffic. A few after boot are usual; many
    mean that a link is failing.

    To do: watch whether they grow (`nvidia-smi nvlink -e`); reset; exchange cable, bridge or board.
    """
    answer = machine.command("nvlink_errors")
    counters = nvlink_errors(answer.get("stdout", ""))
    if not counters:
        missed = Finding("skip", "not checked: nvidia-smi did not list the counters")
        return missed if answer.get("error") else Finding("unsupported", "no NVLink counters here")
    limit = int(setting("nvlink_errors_warn"))
    items = []
    for gpu in machine.gpus:
        mine = {link: values for (index, link), values in counters.items() if index == gpu.index}
        sums = {link: sum(values.values()) for link, values in mine.items()}
        total = sum(sums.values())
        if not mine:
            items.append(Item(gpu.label, "skip", "shows no counters, unlike other GPUs here"))
        elif total > limit or any(values.get("Recovery Errors") for values in mine.values()):
            text = f"{total} errors, most on link {max(sums, key=lambda link: sums[link])}"
            items.append(Item(gpu.label, "warn", text, total, 0, limit))
        else:
            items.append(Item(gpu.label, "pass", measured=total, expected=0, limit=limit))
    return from_items(items, "no errors counted", unit="errors")
