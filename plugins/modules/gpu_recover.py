#!/usr/bin/python
"""Ansible module: GPUs reset after an error, and a record of what was done to recover them."""

DOCUMENTATION = r"""
module: gpu_recover
short_description: Reset GPUs after an error, and keep a record of recoveries
description:
  - Resets GPUs with C(nvidia-smi --gpu-reset). Refused, with nothing changed, are GPUs that a program uses, that hold
    MIG instances, or that may only be reset together with others (NVLink before Ampere, NVSwitches without a running
    fabric manager). Services that only watch the GPUs are stopped for the reset and started again.
  - Recoveries are recorded in C(recoveries.json) below O(host.state_dir), with the time since the boot.
options:
  mode:
    description:
      - C(begin) takes ownership of the host, as an apply does; C(reset) resets; C(note) records what was done and
        releases the host.
    type: str
    required: true
    choices: [begin, reset, note]
  gpus: {description: PCI addresses., type: list, elements: str, default: []}
  action: {description: "What was done, for C(note).", type: str, default: ""}
  why: {description: "Who asked for it, in words.", type: list, elements: str, default: []}
  outcome: {description: "The result, for C(note); C(done) when it succeeded.", type: str, default: ""}
  controller: {description: "Who changes the host, as C(owner) of C(gpu_state).", type: dict, default: {}}
extends_documentation_fragment:
  - gpusetup.stack.host
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Reset a GPU that asks for it
  gpusetup.stack.gpu_recover:
    mode: reset
    gpus: ["0000:17:00.0"]
    why: ["the driver's recovery action is: Reset"]
"""

RETURN = r"""
owner:
  description: Token of the host's owner; every later step names it.
  returned: for begin
  type: str
left:
  description: What the driver still asks for, by PCI address.
  returned: for reset
  type: dict
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import failure, owner, params, process, recover


def begin(module: Any) -> Dict[str, Any]:
    """Become the owner of the host."""
    request = params.plain(module)
    token = "" if module.check_mode else owner.take(request["state_dir"], request["controller"], "recover")
    return {"changed": False, "owner": token}


def act(module: Any) -> Dict[str, Any]:
    """Reset GPUs, or record what was done and release the host."""
    request, check = params.owned(module), module.check_mode
    gpus = request["gpus"]
    done = {"gpus": gpus, "why": request["why"], "who": str(request["controller"].get("user") or "")}
    if request["mode"] == "reset":
        result = recover.reset(gpus, process.environment(), request["state_dir"], check)
        if not check:
            left = "; ".join(f"{address} still asks for {action}" for address, action in result["left"].items())
            recover.record_recovery(request["state_dir"], dict(done, action="reset", outcome=left or "done"))
        if result["trouble"]:
            hint = "journalctl -xe says why; the next apply or recovery starts it again"
            raise failure.HostFailure("GS-487", result["trouble"], ", ".join(gpus), "the reset itself is done", hint)
        return result
    if not check:
        if request["action"]:
            recover.record_recovery(
                request["state_dir"], dict(done, action=request["action"], outcome=request["outcome"])
            )
        owner.release(request["state_dir"], module.params["host"]["owner"])
    return {"changed": False}


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec=params.spec(
            mode={"type": "str", "required": True, "choices": ["begin", "reset", "note"]},
            gpus={"type": "list", "elements": "str", "default": []},
            action={"type": "str", "default": ""},
            why={"type": "list", "elements": "str", "default": []},
            outcome={"type": "str", "default": ""},
            controller={"type": "dict", "default": {}},
        ),
        supports_check_mode=True,
    )
    with params.failing(module):
        result = begin(module) if module.params["mode"] == "begin" else act(module)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
