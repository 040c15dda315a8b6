#!/usr/bin/python
"""Ansible module: return how Ansible would connect to a host. The action plugin does all of it, on the controller."""

DOCUMENTATION = r"""
module: gpu_reach
short_description: Return how Ansible would connect to a host, without connecting
description:
  - Returns the options of the host's connection plugin, for programs that keep their own connection open.
  - No host is contacted. Of a password, only its existence is returned.
options: {}
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: How it is reached
  gpusetup.stack.gpu_reach:
  register: __gpu_reach
"""

RETURN = r"""
connection:
  description: Name of the connection plugin.
  returned: always
  type: str
options:
  description: Host, port, user, key and arguments of the plugin C(ssh); empty for others.
  returned: always
  type: dict
password:
  description: Whether a password is set for the connection.
  returned: always
  type: bool
interpreter:
  description: The host's C(ansible_python_interpreter), empty when none is set.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Fail: the action plugin does the work, so this part is never sent to a host."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.fail_json(msg="gpu_reach runs on the controller alone: its action plugin is missing")


if __name__ == "__main__":
    main()
