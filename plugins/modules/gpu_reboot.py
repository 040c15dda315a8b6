#!/usr/bin/python
"""Ansible module: reboot the host and wait for it. All of it is done by the action plugin, on the controller."""

DOCUMENTATION = r"""
module: gpu_reboot
short_description: Reboot the host, and continue as soon as it answers again
description:
  - Reads the host's boot id, reboots it, and polls until it answers with another one. The intervals and the connection
    timeout grow with the wait, so a fast virtual machine is noticed at once, and a server that takes minutes is not
    polled all the time.
  - The machine that Ansible runs on (a local connection) is not rebooted.
extends_documentation_fragment: gpusetup.stack.options.gpu_reboot
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Reboot
  gpusetup.stack.gpu_reboot:
    text: "gpusetup: another driver"
"""

RETURN = r"""
rebooted:
  description: Whether the reboot was begun.
  returned: always
  type: bool
elapsed:
  description: Seconds until the host was back.
  returned: when the reboot was begun
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params

SPEC = {
    "text": params.text("Message to the users of the host.", "gpusetup"),
    "timeout": params.number("Seconds within which it must be back.", 600),
}


def main() -> None:
    """Fail: the action plugin does the work, so this part is never sent to a host."""
    module = AnsibleModule(argument_spec=params.spec(SPEC, host=False), supports_check_mode=True)
    module.fail_json(msg="gpu_reboot runs on the controller: its action plugin is missing")


if __name__ == "__main__":
    main()
