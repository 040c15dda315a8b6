#!/usr/bin/python
"""Ansible module: GPUs cut into MIG instances."""

DOCUMENTATION = r"""
module: gpu_mig
short_description: Cut GPUs into MIG instances
description:
  - Sets the MIG mode, GPU instances and compute instances of GPUs; checks them first against the profiles and places
    that the GPU itself reports, and verifies the result. All GPUs are changed together; when anything fails, all get
    their earlier layout back.
  - GPUs that programs use are refused before anything is touched. Services that only watch the GPUs are stopped for
    the change and started again.
  - A unit brings the layout back at every boot, NVIDIA's C(nvidia-mig-manager) where it is installed. Where the driver
    does not run yet, that unit lays the GPUs out at the next boot.
  - The layout before the first change is recorded, and restored when the GPU is no longer in O(layouts).
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_mig]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Seven instances on one GPU
  gpusetup.stack.gpu_mig:
    gpus: ["0000:00:06.0"]
    layouts:
      - gpu: "0000:00:06.0"
        enabled: true
        instances: [{profile: 1g.18gb, count: 7}]
"""

RETURN = r"""
made:
  description: What each GPU has now, or gets at the next boot, by PCI address.
  returned: always
  type: dict
reboot:
  description: Why a reboot is needed before a GPU's mode changes.
  returned: always
  type: list
  elements: str
"""

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import mig_kept, params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

SPEC = {
    "layouts": params.several(
        "What each GPU is to have.",
        {
            "gpu": params.needed("PCI address."),
            "enabled": params.needed("Whether MIG is on.", type="bool"),
            "instances": params.several(
                "GPU instances.",
                {
                    "profile": params.needed("Profile, as C(nvidia-smi mig -lgip) names it."),
                    "count": params.number("How many; 0 means as many as possible.", 1),
                    "compute": params.texts("Compute instances in each; empty means one of the full size."),
                },
            ),
        },
    ),
    "gpus": params.texts("PCI addresses of all of the host's GPUs, as the driver numbers them."),
    "program": params.text("What brings the layout back at boot, packed; filled in by the action plugin."),
}


def main() -> None:
    module, request = params.opened(SPEC)
    wishes = {
        item["gpu"]: {"enabled": item["enabled"], "instances": item["instances"]} for item in module.params["layouts"]
    }
    order = module.params["gpus"] or sorted(wishes)
    with params.failing(module):
        ledger = Ledger(request["state_dir"], module.check_mode)
        env, check, program = process.environment(), module.check_mode, module.params["program"]
        result = mig_kept.lay(ledger, wishes, order, env, check, program=program)
    module.exit_json(diff=ledger.diffs, **result)


if __name__ == "__main__":
    main()
