#!/usr/bin/python
"""Ansible module: the licence of a vGPU guest."""

DOCUMENTATION = r"""
module: gpu_licence
short_description: License a vGPU guest with a token
description:
  - Installs the client configuration token and the feature for NVIDIA's licence daemon, restarts the daemon when they
    changed, and waits until nvidia-smi reports that a licence is granted.
  - What was there before is recorded, so that removal and rollback restore it. The token is readable by root alone
    and appears in no log, diff or record.
options:
  token: {description: The token itself; needed to license., type: str}
  state:
    description: C(absent) removes our token and restores the daemon's settings.
    type: str
    choices: [present, absent]
    default: present
  feature:
    description: What to license. C(vgpu) leaves the kind of licence to the vGPU's profile.
    type: str
    choices: [vgpu, workstation, gaming, compute]
    default: vgpu
  wait: {description: Seconds to wait for the licence., type: int, default: 60}
  start:
    description: Restart the daemon now; false leaves that to the next boot (the driver is not loaded yet).
    type: bool
    default: true
extends_documentation_fragment:
  - gpusetup.stack.host
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: License the vGPU
  gpusetup.stack.gpu_licence:
    token: "{{ lookup('ansible.builtin.file', 'client_configuration_token.tok', rstrip=false) }}"
"""

RETURN = r"""
states:
  description: The licence state of each GPU as nvidia-smi reports it.
  returned: always
  type: list
  elements: str
others:
  description: Other tokens, which another program or a person installed.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import licence, params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.licence import FEATURES


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec=params.spec(
            token={"type": "str", "no_log": True},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            feature={"type": "str", "choices": list(FEATURES), "default": "vgpu"},
            wait={"type": "int", "default": 60},
            start={"type": "bool", "default": True},
        ),
        required_if=[("state", "present", ["token"])],
        supports_check_mode=True,
    )
    request = params.owned(module)
    check, start = module.check_mode, module.params["start"]
    with params.failing(module):
        env = process.environment()
        ledger = Ledger(request["state_dir"], check)
        if module.params["state"] == "absent":
            changed = licence.give_up(ledger, env, start and not check)
            module.exit_json(changed=changed, diff=ledger.diffs, states=[], others=licence.others())
        if not check:
            licence.refuse_without_daemon(env)
        changed = licence.write(ledger, module.params["token"], FEATURES[module.params["feature"]])
        states = licence.state(env)
        if start and not check and (licence.is_behind(env) or not licence.granted(states)):
            states = licence.license_now(ledger, env, module.params["wait"])
            changed = True
    module.exit_json(changed=changed, diff=ledger.diffs, states=states, others=licence.others())


if __name__ == "__main__":
    main()
