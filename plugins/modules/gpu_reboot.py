#!/usr/bin/python
"""Ansible module: reboot the host and wait for it. All of it is done by the action plugin, on the controller."""

DOCUMENTATION = r"""
module: gpu_reboot
short_description: Reboot the host, and go on as soon as it answers after it
description:
  - Asks the host for its boot id, has it rebooted, and looks until it answers with another one. The time between two
    looks and the time for a connection grow with the wait, so a virtual machine is seen at once and a server that
    takes minutes is not asked all the time.
  - A machine that this runs on (a local connection) is not rebooted.
options:
  text: {description: What the users of the host read., type: str, default: gpusetup}
  command: {description: "Reboots the host in place of C(shutdown), as a shell would run it.", type: str, default: ""}
  timeout: {description: Seconds within which it must be back., type: int, default: 600}
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
  description: Seconds that the host was awaited.
  returned: when the reboot was begun
  type: int
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Fail: the action plugin does the work, so this part is never sent to a host."""
    options = {"text": {"type": "str", "default": "gpusetup"}, "command": {"type": "str", "default": ""}}
    module = AnsibleModule(
        argument_spec={**options, "timeout": {"type": "int", "default": 600}}, supports_check_mode=True
    )
    module.fail_json(msg="gpu_reboot runs on the controller: its action plugin is missing")


if __name__ == "__main__":
    main()
