"""Where NVLink reaches over several machines, IMEX is up on all of them, and programs have a channel.

`nvidia-imex-ctl -N -j` is asked: the domain must be UP, every machine READY and connected to every other, and of the
driver's exact version. A machine that is missing in one list of nodes is enough to keep the domain down. Machines with
NVLink of their own only have no IMEX, which is said and not passed.

To do: the same `gpusetup_imex` on every machine, then `gpusetup apply`; `journalctl -u nvidia-imex`; the ports 50000
and 50005 between the machines.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.registry import check, from_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.verify.machine import Machine

_CHANNELS = "/dev/nvidia-caps-imex-channels/"


@check(
    "fabric.imex",
    "The IMEX domain is up",
    needs=("gpu",),
    seconds=lambda machine: machine.took("imex", "facts"),
)
def judge(machine: Machine) -> Finding:
    """Judge the service, the domain, the versions and the channels."""
    unit, wanted = machine.service("imex"), machine.wanted.imex
    if unit is None and not wanted:
        return Finding("unsupported", "no IMEX here")
    if unit is None:
        return Finding("fail", "gpusetup_imex was applied, but nvidia-imex is not installed")
    if unit["active"] != "active":
        if not wanted:
            return Finding("unsupported", "nvidia-imex is installed and does not run; nothing asks for it")
        return Finding("fail", f"{unit['unit']} is {unit['active'] or 'not known to systemd'}")
    domain = _domain(machine)
    if domain is None:
        answer = machine.command("imex")
        why = (answer.get("stderr") or answer.get("error") or "no JSON").strip()[:160]
        return Finding("skip", f"nvidia-imex-ctl tells nothing of the domain: {why}")
    items = [_node(node, machine.module_version) for node in domain["nodes"]]
    hosts = {str(node.get("host")) for node in domain["nodes"]} | {
        str(node.get("hostName")) for node in domain["nodes"]
    }
    items += [
        Item(subject=node, verdict="fail", text="is in gpusetup_imex, and not in this domain")
        for node in wanted
        if node not in hosts
    ]
    if not any(str(file.get("path", "")).startswith(_CHANNELS) for file in _files(machine)):
        text = "there is no channel: programs cannot share memory with other machines"
        items.append(Item(subject="channels", verdict="fail", text=text))
    if domain["status"] != "UP":
        grave = [item for item in items if item.verdict == "fail"]
        named = "; ".join(f"{item.subject} {item.text}" for item in grave[:3])
        text = f"the domain is {domain['status']}" + (f": {named}" if named else "")
        return Finding("fail", text, domain["status"], "UP", items=tuple(items))
    return from_items(items, f"UP, {len(domain['nodes'])} machines")


def _domain(machine: Machine) -> dict[str, Any] | None:
    """Return the domain's status and its machines by their numbers, None when it was not told."""
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
        return Item(subject=subject, verdict="fail", text=f"is {status}", measured=status, expected="READY")
    connections = node.get("connections")
    others = [dict(item) for item in connections.values()] if isinstance(connections, dict) else []
    cut = [str(item.get("host")) for item in others if item.get("status") != "CONNECTED"]
    if cut:
        return Item(subject=subject, verdict="fail", text=f"has no connection to {', '.join(cut[:4])}")
    if driver and version and version[:1].isdigit() and not f"{driver}.".startswith(f"{version}."):
        text = f"runs IMEX {version}, and the driver here is {driver}"
        return Item(subject=subject, verdict="fail", text=text, measured=version, expected=driver)
    return Item(subject=subject, verdict="pass", measured=status)
