#!/usr/bin/python
"""Ansible module: keep nouveau off the GPU."""

DOCUMENTATION = r"""
module: gpu_nouveau
short_description: Keep nouveau off the GPU, in modprobe.d, on the kernel command line and in the initramfs that boots
  next
description:
  - Rebuilds the initramfs only of kernels whose image would still start nouveau, checks that C(/boot) has room first,
    and reads the image afterwards as proof.
  - Runs detached; repeat the call until C(finished) is true.
options:
  state:
    description: "C(present) keeps nouveau away, C(absent) undoes it."
    type: str
    default: present
    choices: [present, absent]
  kernel_argument: {description: Also on the kernel command line., type: bool, default: true}
  kernels:
    description: Kernels whose initramfs counts; empty is the one that boots next.
    type: list
    elements: str
    default: []
  poll: {description: Longest wait of one call in seconds., type: int, default: 10}
extends_documentation_fragment:
  - gpusetup.stack.host
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Keep nouveau off the GPU
  gpusetup.stack.gpu_nouveau:
  register: nouveau
  until: nouveau.finished
  retries: 100
  delay: 0
"""

RETURN = r"""
initramfs:
  description: For each kernel the image, whether it was rebuilt, and whether it carries nouveau and a blacklist.
  returned: when finished
  type: list
  elements: dict
loaded:
  description: Whether nouveau is loaded now.
  returned: when finished
  type: bool
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import jobs, nouveau, params


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec=params.spec(
            state={"type": "str", "default": "present", "choices": ["present", "absent"]},
            kernel_argument={"type": "bool", "default": True},
            kernels={"type": "list", "elements": "str", "default": []},
            poll={"type": "int", "default": 10},
        ),
        supports_check_mode=True,
    )
    request = params.owned(module)
    wait = request.pop("poll")
    job = jobs.Job(request["state_dir"], "nouveau", request)
    seen: Dict[str, Dict[str, Any]] = {}
    if module.check_mode or not job.joinable():  # a job that rebuilds the initramfs has already written the files
        with params.failing(module, finished=True, progress={}):
            result = nouveau.Nouveau(request, check=True, seen=seen).run()
        for text in result.pop("warnings"):
            module.warn(text)
        if module.check_mode or not result["changed"]:
            module.exit_json(finished=True, progress={}, **result)

    def work(running: jobs.Job) -> Dict[str, Any]:
        result = nouveau.Nouveau(request, tell=running.tell, log=running.log, seen=seen).run()
        result.pop("warnings")  # already reported before the job started
        return result

    with params.failing(module, finished=True, progress={}):
        status = job.start_or_join(work, wait)
    params.follow(module, status, job.log_path)


if __name__ == "__main__":
    main()
