#!/usr/bin/python
"""Ansible module: RDMA, and how adapters and drives reach a GPU's memory."""

DOCUMENTATION = r"""
module: gpu_rdma
short_description: Configure RDMA, GPUDirect RDMA and GPUDirect Storage
description:
  - Lifts the limit of locked memory, loads modules now and at every boot, and for PCI peer-to-peer DMA writes module
    options, rebuilds the initramfs and enables it in C(/etc/cufile.json).
  - A module that the kernel rejects is reported, but not a failure.
  - If nothing is requested, the earlier state is restored.
options:
  stack: {description: Whose RDMA stack the packages are of., type: str, choices: [none, inbox, doca], default: none}
  modules: {description: Modules to load now and at every boot., type: list, elements: str, default: []}
  p2pdma:
    description: Whether NVMe drives are to reach GPU memory by PCI peer-to-peer DMA.
    type: bool
    default: false
extends_documentation_fragment:
  - gpusetup.stack.host
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: The distribution's RDMA stack, with IP over InfiniBand
  gpusetup.stack.gpu_rdma:
    stack: inbox
    modules: [ib_ipoib]
"""

RETURN = r"""
pending:
  description: Modules that could not be loaded now, with the kernel's message.
  returned: always
  type: list
  elements: str
reboot:
  description: Why a reboot is needed; empty when none is.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params, rdma
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.machine import Machine


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec=params.spec(
            stack={"type": "str", "choices": ["none", "inbox", "doca"], "default": "none"},
            modules={"type": "list", "elements": "str", "default": []},
            p2pdma={"type": "bool", "default": False},
        ),
        supports_check_mode=True,
    )
    request = params.owned(module)
    with params.failing(module):
        ledger = Ledger(request["state_dir"], module.check_mode)
        machine = Machine(request["simulated_root"])
        wanted = module.params
        result = rdma.configure(wanted["stack"], wanted["modules"], wanted["p2pdma"], ledger, machine)
    module.exit_json(diff=ledger.diffs, **result)


if __name__ == "__main__":
    main()
