#!/usr/bin/python
"""Ansible module: does this host need a reboot, and is now a good time?"""

DOCUMENTATION = r"""
module: gpu_reboot_need
short_description: Return whether the wanted driver runs, or needs a reboot first
description:
  - The need is read from what is loaded and what is on disk, never from what a run changed, so a reboot that was cut
    off is not forgotten. Processes on the GPU are named. Nothing is changed.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_reboot_need]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Is a reboot needed?
  gpusetup.stack.gpu_reboot_need:
    version: 580.95.05
  register: need
"""

RETURN = r"""
needed:
  description: Whether a reboot is needed.
  returned: always
  type: bool
reasons:
  description: Why.
  returned: always
  type: list
  elements: str
console:
  description: Whether someone must be at the console when it boots (the enrolment of a key is to be confirmed there).
  returned: always
  type: bool
processes:
  description: Processes that use the GPU now, C(pid) and C(command).
  returned: always
  type: list
  elements: dict
changing:
  description: The same of a program that uses the package manager now; a reboot would cut it off.
  returned: always
  type: list
  elements: dict
"""

import time
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.machine import Machine
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.packages import lock_holder

_POLL = 2.0
_GRACE = 20.0
"""Seconds after the end of a boot in which udev may still load a module."""


def settled(machine: Machine, wish: driver.Wish, wait: float) -> Dict[str, Any]:
    """Return the facts once the driver runs, or once further waiting is pointless."""
    over = time.monotonic() + wait
    while True:
        facts = machine.facts()
        if time.monotonic() >= over or not driver.reboot_reasons(facts, wish):
            return facts
        if driver.loaded(facts) is not None or driver.nouveau_runs(facts) or facts["simulated"]:
            return facts
        if not _boots():
            over = min(over, time.monotonic() + _GRACE)
        time.sleep(_POLL)


def _boots() -> bool:
    _code, state, _error = process.output(["systemctl", "is-system-running"], process.environment(), 30)
    return state.strip() in ("initializing", "starting")


SPEC = {
    **params.DRIVER,
    "after_reboot": params.flag("The host has just rebooted for it; a driver that still does not run is a failure."),
    "wait": params.number(
        "After a reboot, the longest wait in seconds for a driver that is loaded late, as by DKMS, which "
        "builds it first. Once the boot is over, some seconds of it are enough.",
        0,
    ),
    "also": params.texts("What else needs a reboot, in words."),
}


def main() -> None:
    module = AnsibleModule(argument_spec=params.spec(SPEC), supports_check_mode=True)
    after, kernels = module.params["after_reboot"], module.params["kernels"]
    # The host's owner waits here for programs to end: every call shows that it is alive.
    request = params.owned(module) if module.params["host"]["owner"] else params.plain(module)
    wish = driver.Wish(module.params["version"], module.params["flavour"], tuple(kernels))
    facts = settled(Machine(request["simulated_root"]), wish, module.params["wait"])
    running = facts["kernel"]["running"]
    reasons = driver.reboot_reasons(facts, wish)
    if reasons and after and not module.check_mode:
        params.end(
            module,
            HostFailure(
                "GS-496",
                "the host rebooted, and the driver still does not run",
                running,
                "; ".join(reasons),
                "`gpusetup doctor` names the cause: Secure Boot that rejects the module and a module for another "
                "kernel are usual",
            ),
        )
    console = bool(reasons and driver.waits_for_console(facts))
    if reasons and driver.refused_module(facts) and not console and not module.check_mode:
        found = driver.module_of(facts, facts["kernel"]["next"])
        params.end(
            module,
            HostFailure(
                "GS-495",
                "the kernel would reject the module after a reboot too",
                (found or {}).get("path", ""),
                driver.signature_problem(facts, found),
                "nothing is rebooted; take modules that are signed, or see in DKMS's build log why it did not sign",
            ),
        )
    reasons = reasons + module.params["also"]
    module.exit_json(
        changed=False,
        needed=bool(reasons),
        reasons=reasons,
        console=console,
        processes=facts["processes"],
        changing=list(filter(None, [lock_holder()])),
        kernel=running,
    )


if __name__ == "__main__":
    main()
