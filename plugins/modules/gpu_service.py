#!/usr/bin/python
"""Ansible module: services of the stack."""

DOCUMENTATION = r"""
module: gpu_service
short_description: Enable and start services, and record their earlier state
description:
  - One call for several units. Their earlier state is recorded, so that removal restores it. A unit that does not start
    is a failure with the last lines of its journal.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_service]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Keep the driver initialised
  gpusetup.stack.gpu_service:
    names: [nvidia-persistenced]
"""

RETURN = r"""
units:
  description: The units' state.
  returned: always
  type: dict
"""

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params, process, services
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

SPEC = {
    "names": {"description": "Units.", "type": "list", "elements": "str", "required": True},
    "give_up": params.texts("Units that get their earlier state back."),
    "start": params.flag("Start them now; false enables them for the next boot (the driver is not loaded yet).", True),
}


def main() -> None:
    module, request = params.opened(SPEC)
    with params.failing(module):
        ledger, env = Ledger(request["state_dir"], module.check_mode), process.environment()
        left = services.take_down(ledger, env, [services.full_name(name) for name in module.params["give_up"]])
        changed = services.bring_up(ledger, module.params["names"], module.params["start"], env) or bool(left)
        units = services.look([services.full_name(name) for name in module.params["names"]], env)
    module.exit_json(changed=changed, units=units)


if __name__ == "__main__":
    main()
