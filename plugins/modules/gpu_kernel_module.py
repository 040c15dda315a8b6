#!/usr/bin/python
"""Ansible module: the nvidia module of the running kernel."""

DOCUMENTATION = r"""
module: gpu_kernel_module
short_description: Configure the nvidia module and load it, or replace the loaded one, when nothing uses it
description:
  - Writes module options and the list of modules to load at boot.
  - Loads the module, or replaces a loaded one of another version or with other options, only when no process, display
    or other module uses the GPU; services of the driver itself are stopped and started again. Otherwise it returns why
    a reboot is needed. It never kills a process, and finally checks with the kernel that the wanted module is loaded.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_kernel_module]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Load the driver
  gpusetup.stack.gpu_kernel_module:
    version: 580.95.05
    flavour: open
  register: loaded
"""

RETURN = r"""
reboot_reasons:
  description: Why the host must be rebooted before the wanted driver runs; empty when it runs.
  returned: always
  type: list
  elements: str
options_waiting:
  description: Options whose value in the loaded module is not the wanted one, or which are no longer wanted; a reboot
    applies them.
  returned: always
  type: list
  elements: str
obstacle:
  description: Why the module could not be loaded or replaced without a reboot.
  returned: always
  type: str
"""

from typing import Any, Dict, List

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import followers, kernel_module, params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.machine import Machine
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver


def settle_images(machine: Machine, request: Dict[str, Any], before: Dict[str, str]) -> List[str]:
    """Update the images that contain the module, which is loaded with the options in its image; return them."""
    if not request["options"] and not before:
        return []
    env, kernels = process.environment(), machine.wanted_kernels(request["kernels"])
    gone = bool(before and not request["options"])
    return followers.settle([followers.BootImage(name, env, forgets=gone) for name in kernels], request["check"])


def waiting(machine: Machine, request: Dict[str, Any], dropped: Dict[str, str]) -> List[str]:
    """Return the options that take effect only when the module is loaded again."""
    if machine.simulated is not None:
        return []
    return followers.options(machine, request["options"], request["kernels"])[0] + kernel_module.kept(dropped)


SPEC = {
    **params.DRIVER,
    "options": params.table("Module options.", default={}),
    "load": params.texts("Modules to load at boot."),
    "reload": params.flag("Load or replace the module now, when nothing uses it; otherwise a reboot does.", True),
}


def main() -> None:
    module, request = params.opened(SPEC)
    request["check"] = module.check_mode
    wish = driver.Wish(request["version"], request["flavour"], tuple(request["kernels"]))
    obstacle = ""
    with params.failing(module):
        ledger, machine = Ledger(request["state_dir"], module.check_mode), Machine(request["simulated_root"])
        before, options = kernel_module.written(), request["options"]
        dropped = {name: value for name, value in before.items() if name not in options}
        changed = bool(ledger.arrange(kernel_module.configuration(options, request["load"])))
        changed = bool(settle_images(machine, request, before)) or changed
        facts = machine.facts()
        reasons, waits = driver.reboot_reasons(facts, wish), waiting(machine, request, dropped)
        if (reasons or waits) and request["reload"]:
            loader = kernel_module.Loader(machine, ledger)
            obstacle = driver.obstacle(facts, wish) or ""
            if not obstacle:
                changed = True
                if not module.check_mode:
                    obstacle = loader.load() or ""
                    reasons = driver.reboot_reasons(machine.facts(), wish)
                    waits = waiting(machine, request, dropped) if obstacle else []
    module.exit_json(
        changed=changed, reboot_reasons=reasons, options_waiting=waits, obstacle=obstacle, diff=ledger.diffs
    )


if __name__ == "__main__":
    main()
