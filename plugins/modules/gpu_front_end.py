#!/usr/bin/python
"""Ansible module: run a command of gpusetup where this job runs. All of it is done by the action plugin."""

DOCUMENTATION = r"""
module: gpu_front_end
short_description: Run a command of gpusetup where this job runs, and tell what became of each host
description:
  - For AWX and Automation Controller, whose jobs are playbooks. Runs once, where Ansible runs, with gpusetup beside it.
  - Hosts are reached as this ansible-playbook was told (inventory, limit, user, key, passwords).
  - Host keys are checked, by a file C(known_hosts) in the folder in which Ansible was started.
  - A failed host is part of C(hosts), not a failure of this task.
extends_documentation_fragment: gpusetup.stack.options.gpu_front_end
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Look at all hosts
  gpusetup.stack.gpu_front_end:
    command: facts
  run_once: true
  register: __gpu_front_end
"""

RETURN = r"""
hosts:
  description: For each host its state, whether that is good, whether the host was changed, and a line for people.
  returned: always
  type: dict
artifacts:
  description: The same, and a plan, under names that no other job of a workflow uses.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params

SPEC = {
    "command": params.choice(
        "What to run. C(verdict) runs nothing; it returns how the earlier jobs of a workflow ended per host.",
        ["facts", "plan", "apply", "verify", "rollback", "verdict"],
    ),
    "options": params.table(
        "Options of gpusetup's commands, by name; each command takes its own, and empty values are left out.",
        default={},
    ),
    "planned": params.flag("For C(apply), carry out the plan of an earlier job, and fail if there is none."),
}


def main() -> None:
    """Fail: the action plugin does the work, so this part is never sent to a host."""
    module = AnsibleModule(argument_spec=params.spec(SPEC, host=False), supports_check_mode=True)
    module.fail_json(msg="gpu_front_end runs on the controller alone: its action plugin is missing")


if __name__ == "__main__":
    main()
