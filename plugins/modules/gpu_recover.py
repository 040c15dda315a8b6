#!/usr/bin/python
"""Ansible module: GPUs reset after an error, and a record of what was done to recover them."""

DOCUMENTATION = r"""
module: gpu_recover
short_description: Reset GPUs after an error, and keep a record of recoveries
description:
  - Resets GPUs with C(nvidia-smi --gpu-reset). Refused, with nothing changed, are GPUs that a program uses, that hold
    MIG instances, or that may only be reset together with others (NVLink before Ampere, NVSwitches without a running
    fabric manager). Services that only watch the GPUs are stopped for the reset and started again.
  - Recoveries are recorded in C(recoveries.json) below O(host.state_dir), with the time since the boot.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_recover]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Reset a GPU that asks for it
  gpusetup.stack.gpu_recover:
    mode: reset
    gpus: ["0000:17:00.0"]
    why: ["the driver's recovery action is: Reset"]
"""

RETURN = r"""
owner:
  description: Token of the host's owner; every later step names it.
  returned: for begin
  type: str
left:
  description: What the driver still asks for, by PCI address.
  returned: for reset
  type: dict
"""

import os
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, owner, params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.gpu_users import refuse_busy
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.systemd import Stopped
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import mig as mig_probe
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import pci, smi
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import LiveHost

Env = Dict[str, str]
FILE = "recoveries.json"
_KEPT = 100
_BEGUN = "interrupted"
_AMPERE = 8
_FABRIC_MANAGER = "nvidia-fabricmanager.service"


def reset(done: Dict[str, Any], env: Env, folder: str, check: bool = False) -> Dict[str, Any]:
    """Reset the GPUs of a recovery by their PCI addresses, with an entry on record before; return what the driver
    still asks for.
    """
    run, addresses = process.smi(env), done["gpus"]
    gpus = _gpus(env)
    for address in addresses:
        if address not in {gpu["address"] for gpu in gpus}:
            raise HostFailure(
                "GS-421", f"the GPU at {address} does not answer, so it cannot be reset",
                "nvidia-smi names {}".format(", ".join(gpu["address"] for gpu in gpus) or "none"),
                hint="reboot the host; if it is lost again, power-cycle the host",
            )  # fmt: skip
    refused = refusal(gpus, addresses, *_fabric(env))
    if refused is not None:
        raise HostFailure("GS-422", "a reset is not possible: " + refused[0], ", ".join(addresses),
                          "nothing was changed", refused[1])  # fmt: skip
    refuse_busy([gpu for gpu in gpus if gpu["address"] in addresses], env, "GS-423", "that need a reset")
    watchers = Stopped(driver.FOR_RESET, env, Ledger(folder, check))
    if check:
        return {"changed": True, "left": {}}
    record_recovery(folder, done)
    with watchers:
        answer = run(["--gpu-reset", "-i", ",".join(addresses)])
    left = _left(addresses)
    asked = "; ".join(f"{address} still asks for {action}" for address, action in left.items())
    record_recovery(folder, done, "failed" if answer["rc"] else asked or "done")
    if answer["rc"] != 0:
        words = " ".join((answer["out"] + answer["err"]).split())[:400]
        raise HostFailure("GS-424", "nvidia-smi could not reset the GPU", ", ".join(addresses), words,
                          "reboot the host; on a virtual machine its owner may have to")  # fmt: skip
    if watchers.trouble:
        raise HostFailure("GS-487", watchers.trouble, ", ".join(addresses), "the reset itself is done",
                          "journalctl -xe says why; the next apply or recovery starts it again")  # fmt: skip
    return {"changed": True, "left": left}


def refusal(
    gpus: Sequence[Dict[str, Any]], chosen: Sequence[str], nvswitch: bool, fabric_manager: Optional[bool]
) -> Optional[Tuple[str, str]]:
    """Return why the chosen GPUs of a host may not be reset, and what to do about it; None when they may.

    The rules are those of nvidia-smi's manual on --gpu-reset. Each GPU has `address`, `capability` (None: unknown),
    `links` (NVLinks that are up) and `instances` (of MIG).
    """
    mine = [gpu for gpu in gpus if gpu["address"] in chosen]
    cut = [gpu["address"] for gpu in mine if gpu["instances"]]
    if cut:
        return (
            "MIG instances do not outlive a reset, and there are some on {}".format(", ".join(cut)),
            "when no program uses them: nvidia-smi mig -dci; nvidia-smi mig -dgi; afterwards: gpusetup apply",
        )
    linked = [gpu["address"] for gpu in gpus if gpu["links"]]
    left = [address for address in linked if address not in chosen]
    if not left or not any(gpu["links"] for gpu in mine):
        return None
    why = _together(mine, nvswitch, fabric_manager)
    if why is None:
        return None
    return (
        "{}: all GPUs with NVLink must be reset together, and {} would be left out".format(why, ", ".join(left)),
        "when nothing runs on any of them: sudo nvidia-smi --gpu-reset; or reboot the host",
    )


def _together(mine: Sequence[Dict[str, Any]], nvswitch: bool, fabric_manager: Optional[bool]) -> Optional[str]:
    """Return why GPUs that NVLink connects cannot be reset one by one; None when they can."""
    if nvswitch and not fabric_manager:
        return "the GPUs hang on NVSwitches and the fabric manager does not run"
    old: List[str] = [gpu["address"] for gpu in mine if gpu["links"] and _major(gpu["capability"]) < _AMPERE]
    if old:
        return "{} is older than Ampere, or does not report its generation".format(", ".join(old))
    return None


def _major(capability: Optional[str]) -> int:
    head = (capability or "").partition(".")[0]
    return int(head) if head.isdigit() else 0


def _gpus(env: Env) -> List[Dict[str, Any]]:
    """Return the properties of each responding GPU that decide about a reset."""
    run = process.smi(env)
    told = mig_probe.look(run)
    if told is None:
        raise HostFailure("GS-421", "nvidia-smi does not answer, so no GPU can be reset",
                          hint="reboot the host; gpusetup doctor finds the cause")  # fmt: skip
    capabilities = {}
    for line in run(["--query-gpu=pci.bus_id,compute_cap", "--format=csv,noheader"])["out"].splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 2:
            capabilities[cells[0].lower()[-12:]] = cells[1]
    links = smi.nvlinks(LiveHost(), True)
    return [
        {
            "address": gpu["address"],
            "uuid": gpu["uuid"],
            "capability": capabilities.get(gpu["address"]),
            "links": (links.get(gpu["uuid"]) or {}).get("up", 0),
            "instances": gpu["instances"],
        }
        for gpu in told
    ]


def _fabric(env: Env) -> Any:
    """Return whether NVSwitches are present, and whether the fabric manager runs."""
    host = LiveHost()
    there = pci.nvswitch(host, pci.collect(host)["nvswitches"]) is not None
    active = process.output(["systemctl", "is-active", "--quiet", _FABRIC_MANAGER], env, 30)[0] == 0
    return there, active


def _left(addresses: Sequence[str]) -> Dict[str, str]:
    told = smi.recovery_asked(LiveHost(), "nvidia-smi")
    asks = {address: told.get(address, {}).get("action") for address in addresses}
    return {address: action for address, action in asks.items() if action not in (None, "None")}


def record_recovery(folder: str, done: Dict[str, Any], outcome: str = _BEGUN) -> None:
    """Record a recovery (`action`, `gpus`, `why`, `who`) that begins, or its outcome instead."""
    path = os.path.join(folder, FILE)
    read, begun = files.read_json(path), dict(done, outcome=_BEGUN).items()
    kept = [item for item in read if isinstance(item, dict)] if isinstance(read, list) else []
    ended = [item for item in kept if begun <= item.items()][-1:] if outcome != _BEGUN else []
    uptime = float((files.read_text("/proc/uptime") or "0").split()[0])
    entry = dict(done, outcome=outcome, time=time.time(), uptime=uptime, boot=owner.boot())
    files.write_json(path, [*(item for item in kept if item not in ended), entry][-_KEPT:])


def begin(module: Any) -> Dict[str, Any]:
    request = params.plain(module)
    if module.check_mode:
        return {"changed": False, "owner": ""}
    token = owner.take(request["state_dir"], request["controller"], "recover")
    if request["action"]:
        record_recovery(request["state_dir"], _done(request, request["action"]))
    return {"changed": False, "owner": token}


def _done(request: Dict[str, Any], action: str) -> Dict[str, Any]:
    who = str(request["controller"].get("user") or "")
    return {"gpus": request["gpus"], "why": request["why"], "who": who, "action": action}


def act(module: Any) -> Dict[str, Any]:
    request, check = params.owned(module), module.check_mode
    if request["mode"] == "reset":
        return reset(_done(request, "reset"), process.environment(), request["state_dir"], check)
    if not check:
        if request["action"]:
            record_recovery(request["state_dir"], _done(request, request["action"]), request["outcome"])
        owner.release(request["state_dir"], module.params["host"]["owner"])
    return {"changed": False}


SPEC = {
    "mode": params.choice(
        "C(begin) takes ownership of the host, as an apply does; C(reset) resets; C(note) records what "
        "was done and releases the host.",
        ["begin", "reset", "note"],
    ),
    "gpus": params.texts("PCI addresses."),
    "action": params.text("What is to be done, for C(begin), or was, for C(note)."),
    "why": params.texts("Who asked for it, in words."),
    "outcome": params.text("The result, for C(note); C(done) when it succeeded."),
    "controller": params.table("Who changes the host, as C(owner) of C(gpu_state).", default={}),
}


def main() -> None:
    module = AnsibleModule(argument_spec=params.spec(SPEC), supports_check_mode=True)
    with params.failing(module):
        result = begin(module) if module.params["mode"] == "begin" else act(module)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
