#!/usr/bin/python
"""Ansible module: what exports the figures of the GPUs."""

DOCUMENTATION = r"""
module: gpu_monitoring
short_description: Export GPU metrics to Prometheus
description:
  - Sets up DCGM with its exporter, nvidia_gpu_exporter, or a textfile for node_exporter, and removes what an earlier
    run set up of another kind. Their packages come with the transaction of the other packages.
  - An exporter listens on this host alone unless told otherwise. Then it asks for a password over TLS; keys and
    passwords stay in files that only root reads, and are handed to the service by systemd.
  - A port that another program uses, and secrets that everybody can read, are refused before anything is written.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_monitoring]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Figures of the GPUs through node_exporter
  gpusetup.stack.gpu_monitoring:
    exporter: textfile
    listen: 127.0.0.1:9100
    folder: /var/lib/prometheus/node-exporter
"""

RETURN = r"""
exporter:
  description: What exports now.
  returned: always
  type: str
"""

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import monitoring, params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

SPEC = {
    "mode": params.choice(
        "C(prepare) writes the files that a package needs if it starts its service itself; C(set_up) does all.",
        ["prepare", "set_up"],
        "set_up",
    ),
    "exporter": params.choice(
        "What exports; C(none) removes what was set up.", ["none", "dcgm", "nvidia_gpu_exporter", "textfile"], "none"
    ),
    "listen": params.text("Address and port; empty if a node_exporter is there already."),
    "folder": params.text("Where the textfile goes."),
    "dcgm": params.text("The version of DCGM, by which its counters are called."),
    "certificate": params.text("Path of the certificate on the host."),
    "key": params.text("Path of its key on the host.", no_log=False),
    "passwords": params.text("Path on the host of lines as C(htpasswd -B) writes them.", no_log=False),
    "start": params.flag("Start the services now, not only at the next boot.", True),
    "program": params.text("What writes the textfile, packed; filled in by the action plugin."),
}


def main() -> None:
    module, request = params.opened(SPEC)
    wish = monitoring.asked(request)
    collector = params.program(request["program"]) if wish.kind == "textfile" else {}
    with params.failing(module):
        ledger, env = Ledger(request["state_dir"], module.check_mode), process.environment()
        if request["mode"] == "prepare":
            changed = monitoring.prepare(ledger, wish, collector, env)
        else:
            changed = monitoring.set_up(ledger, wish, collector, request["start"], env)
    module.exit_json(changed=changed, exporter=wish.kind, diff=ledger.diffs)


if __name__ == "__main__":
    main()
