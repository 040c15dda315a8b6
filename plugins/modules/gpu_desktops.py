#!/usr/bin/python
"""Ansible module: desktops of several people, drawn on the GPUs."""

DOCUMENTATION = r"""
module: gpu_desktops
short_description: Set up desktops of several people, drawn on the GPUs
description:
  - Gives each user a VNC server, a noVNC page and a password, as systemd units that run with the user's rights, and
    waits until they answer.
  - A running desktop keeps its old settings when they change, because a restart would end the programs in it.
  - With O(backend=none) everything that was set up is removed.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_desktops]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Two desktops
  gpusetup.stack.gpu_desktops:
    backend: egl
    users: [alice, bob]
"""

RETURN = r"""
pending:
  description: Units that still run with earlier settings.
  returned: always
  type: list
  elements: str
"""

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import desktops, params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

SPEC = {
    "session": params.text("The program that draws the desktop; empty is openbox with a terminal."),
    "certificate": params.text("Path on the host of the certificate for connections from other machines."),
    "group": params.text("The only group that may use the GPUs; empty leaves that as it is."),
    "backend": params.choice(
        "How programs reach a GPU. C(egl) needs no X server there, C(x) runs one without a screen.",
        ["none", "egl", "x"],
    ),
    "users": params.texts("Users of the host; the first one's page is at the first port."),
    "size": params.text("Width and height.", "1920x1080"),
    "listen": params.text("Address of the pages.", "127.0.0.1"),
    "port": params.number("Port of the first page.", 6080),
    "key": params.text("Path on the host of its key.", no_log=False),
    "gpus": params.texts("PCI addresses of the GPUs, over which the users are spread."),
}


def main() -> None:
    module, request = params.opened(SPEC)
    env, check = process.environment(), module.check_mode
    with params.failing(module):
        ledger = Ledger(request["state_dir"], check)
        if request["backend"] == "none":
            result = {"changed": desktops.forget(ledger, env, check), "pending": []}
        else:
            result = desktops.configure(desktops.asked(request), ledger, env, check)
    module.exit_json(diff=ledger.diffs, **result)


if __name__ == "__main__":
    main()
