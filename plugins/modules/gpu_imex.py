#!/usr/bin/python
"""Ansible module: the IMEX domain of a machine."""

DOCUMENTATION = r"""
module: gpu_imex
short_description: Configure IMEX, which shares GPU memory between the machines of one NVLink domain
description:
  - Writes the list of the domain's machines, creates the channels' device files now and at every boot, and enables
    C(nvidia-imex). The service is restarted when its list changed, and started if it is not running.
  - The list must include this host and be the same on every machine of the domain.
  - Without O(nodes) the earlier state is restored.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_imex]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Two machines of one NVLink domain
  gpusetup.stack.gpu_imex:
    nodes: [10.0.0.1, 10.0.0.2]
"""

RETURN = r"""
pending:
  description: What waits for the driver.
  returned: always
  type: list
  elements: str
"""

import os
import re
import socket
from typing import Any, Dict, List, Sequence, Set

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    files,
    followers,
    params,
    process,
    services,
    systemd,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import names

DEVICES = "/proc/devices"
SERVICE = "nvidia-imex.service"


def addresses(env: Dict[str, str]) -> Set[str]:
    return set(re.findall(r" inet6? ([0-9a-f.:]+)", process.output(["ip", "-o", "addr", "show"], env, 30)[1]))


def is_among(node: str, own: Set[str]) -> bool:
    """Return whether an address or a host name is one of these addresses."""
    try:
        places = socket.getaddrinfo(node, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(place[4][0] in own for place in places)


def has_channels() -> bool:
    """Return whether the loaded driver has IMEX channels."""
    devices = files.read_text(DEVICES) or ""
    return bool(re.search(r"^\s*\d+ nvidia-caps-imex-channels$", devices, re.MULTILINE))


def configure(nodes: Sequence[str], channels: int, ledger: Ledger, env: Dict[str, str], check: bool) -> Dict[str, Any]:
    """Configure the domain, or undo it without nodes; return {"changed", "pending"}."""
    unit = os.path.basename(names.IMEX_UNIT)
    if not nodes:
        return {"changed": forget(ledger, env, check), "pending": []}
    own = addresses(env)
    if own and not any(is_among(node, own) for node in nodes):
        raise HostFailure(
            "GS-439", "the IMEX domain does not name this host", ", ".join(nodes),
            "every machine of a domain has the same list, and is on it",
            "add this host's own address to gpusetup_imex (gpu_imex_nodes)",
        )  # fmt: skip
    made = ledger.arrange({names.IMEX_NODES: names.imex_nodes(nodes), names.IMEX_UNIT: names.imex_unit(channels)})
    ready = has_channels()
    pending: List[str] = [] if ready else ["IMEX starts with the driver, at the next boot"]
    restart = followers.Restart(SERVICE, [names.IMEX_NODES], env)
    changed = services.bring_up(ledger, [unit], ready, env)
    again = followers.settle([followers.Restart(unit, [names.IMEX_UNIT], env)], check) if ready else []
    changed = services.bring_up(ledger, [SERVICE], ready, env) or bool(again) or changed
    if ready and not check and restart.due():
        changed = True
        restart.run()
        if restart.due() or not services.look([SERVICE], env)[SERVICE]["active"]:
            raise HostFailure("GS-487", SERVICE + " did not start with its new list", "", "",
                              "journalctl -u nvidia-imex; nvidia-imex-ctl -N")  # fmt: skip
    return {"changed": bool(changed or made), "pending": pending}


def forget(ledger: Ledger, env: Dict[str, str], check: bool) -> bool:
    units = [name for name in (SERVICE, os.path.basename(names.IMEX_UNIT)) if name in ledger.state["services"]]
    changes: List[Any] = list(services.take_down(ledger, env, units))
    changes += ledger.arrange(dict.fromkeys((names.IMEX_NODES, names.IMEX_UNIT)))
    if not check:
        systemd.read_again([os.path.basename(names.IMEX_UNIT)], env)
    return bool(changes)


SPEC = {
    "nodes": params.texts("Addresses or names of the domain's machines."),
    "channels": params.number("How many channels.", 1),
}


def main() -> None:
    module, request = params.opened(SPEC)
    with params.failing(module):
        ledger = Ledger(request["state_dir"], module.check_mode)
        nodes, channels = module.params["nodes"], module.params["channels"]
        result = configure(nodes, channels, ledger, process.environment(), module.check_mode)
        if request["simulated_root"]:  # a simulated host has no driver to wait for
            result["pending"] = []
    module.exit_json(diff=ledger.diffs, **result)


if __name__ == "__main__":
    main()
