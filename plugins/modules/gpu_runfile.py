#!/usr/bin/python
"""Ansible module: a driver from NVIDIA's .run installer."""

DOCUMENTATION = r"""
module: gpu_runfile
short_description: Install NVIDIA's driver from a .run file that is on the host
description:
  - For hosts whose owners have only this file. It must be root's alone, be a driver's installer of the wanted version
    for this CPU, have the expected digest where one is given, and pass its own check; nothing of it runs before.
  - Refuses a host that has a driver from packages. A driver of another .run file is replaced by the installer itself.
  - Builds by DKMS, in the wanted flavour, for the kernel that boots next, and proves that the module is there. The
    module is loaded by another step. Only arguments that this very installer lists are used.
  - Runs detached; repeat the call until C(finished) is true.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_runfile]
attributes:
  check_mode:
    description: Tells whether it would install.
    support: full
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: The driver from a file
  gpusetup.stack.gpu_runfile:
    path: /root/NVIDIA-Linux-x86_64-580.95.05.run
    version: 580.95.05
    flavour: open
  register: done
  until: done.finished
  retries: 700
  delay: 0
"""

RETURN = r"""
finished:
  description: Whether the installation has ended; repeat the call while it is false.
  returned: always
  type: bool
progress:
  description: C(step), C(message), C(percent) of a running installation.
  returned: always
  type: dict
"""

from typing import Any, Dict

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import jobs, params, runfile
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.machine import Machine


def installation(request: Dict[str, Any], job: Any = None) -> runfile.Installation:
    ledger, machine = Ledger(request["state_dir"]), Machine(request["simulated_root"])
    tell, log = (job.tell, job.log) if job is not None else (lambda *_words: None, None)
    return runfile.Installation(request, machine, ledger, tell, log)


SPEC = {
    **params.DRIVER,
    "path": params.needed(
        "The .run file on the host, or the address to fetch it from; what was fetched stays in the state folder."
    ),
    "sha256": params.text("Digest that the file must have; when empty, only its owner and its own check vouch for it."),
    "dkms": params.flag("Register the modules with DKMS, so that later kernels get them too.", True),
    "poll": params.number("Longest wait of one call in seconds.", 10),
}


def main() -> None:
    module, request = params.opened(SPEC)
    wait = request.pop("poll")
    with params.failing(module, finished=True, progress={}):
        job = jobs.Job(request["state_dir"], "runfile", request)
        ready = installation(request).is_installed() and not job.joinable()
        if ready or module.check_mode:
            module.exit_json(changed=not ready, finished=True, progress={})
        status = job.start_or_join(lambda running: installation(request, running).run(), wait)
    params.follow(module, status, job.log_path)


if __name__ == "__main__":
    main()
