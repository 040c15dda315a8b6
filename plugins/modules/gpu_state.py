#!/usr/bin/python
"""Ansible module: the record of what gpusetup did to a host."""

DOCUMENTATION = r"""
module: gpu_state
short_description: Open, record and undo an apply
description:
  - Keeps C(state.json), the history and the originals of changed files below O(host.state_dir), written in one step
    each.
  - C(begin) returns at once whether the host is still exactly as finished applies left it, every part was requested in
    the same way, and nothing is pending; a play can then end there.
options:
  mode:
    description:
      - C(begin) opens an apply, C(finish) records it, C(verified) keeps what the verification of this apply found.
      - C(history) returns the recorded applies.
      - C(removal) returns what removal has to do, C(stop) restores services, C(clean) restores files, links and the
        Python environment, and deletes the record.
    type: str
    required: true
    choices: [begin, finish, verified, history, removal, stop, clean]
  wanted:
    description: Everything that was requested; its digest shows whether two applies want the same.
    type: dict
    default: {}
  verified: {description: "What the verification found, for C(verified).", type: dict, default: {}}
  lock: {description: "The lock, recorded as it is.", type: dict, default: {}}
  id: {description: Identifier of this apply., type: str, default: ""}
  planned:
    description: "The apply on record when this one was planned, and when it finished: C(begin) refuses another one."
    type: list
    elements: str
    default: []
  keep: {description: How many applies the history keeps., type: int, default: 10}
  python: {description: "C(path), C(packages), C(adopted) of the Python environment, when there is one.", type: dict}
  environments:
    description: "The same of each named environment that was made, for C(finish)."
    type: list
    elements: dict
    default: []
  manager: {description: The host's package manager., type: str, required: true, choices: [apt, dnf, zypper]}
  remove: {description: Patterns of packages that must not be installed., type: list, elements: str, default: []}
  driver_version: {description: NVIDIA's version that must run., type: str, default: ""}
  driver_module: {description: Flavour that must run., type: str, default: ""}
  kernels:
    description: Kernels for which the module must be there; empty is the one that boots next.
    type: list
    elements: str
    default: []
  ran:
    description:
      - For C(finish), which parts of O(wanted) this run did; all of them where it is not given. What earlier runs
        recorded of the others stays.
    type: list
    elements: str
  pending:
    description: "What waits for a reboot beside the driver, for C(finish), as a list of texts for each part."
    type: dict
    default: {}
  waits:
    description: "What waits for something else, for C(finish), as a list of texts for each part."
    type: dict
    default: {}
  owner:
    description:
      - Who changes the host, C(controller), C(user), C(run), C(home) (which controller's runs these are), C(alive)
        (its runs that go on) and C(turns) (in how many it goes through its hosts).
      - C(begin) and C(removal) make them the owner of the host, and return the token that later steps must pass.
    type: dict
    default: {}
extends_documentation_fragment:
  - gpusetup.stack.host
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Is there anything to do?
  gpusetup.stack.gpu_state:
    mode: begin
    manager: apt
    wanted: "{{ __gpu_common_wanted }}"
  register: begun
"""

RETURN = r"""
converged:
  description: The host is as wanted, and nothing has changed since.
  returned: for begin
  type: bool
deviations:
  description: What is no longer as the last apply left it.
  returned: for begin
  type: list
  elements: dict
owner:
  description: Token of the host's owner; every later step names it.
  returned: for begin of a host that is not as wanted, and for removal
  type: str
gpu_result:
  description: C(state) (done, unchanged, pending-reboot), C(packages), C(holds), C(files), C(reboot), C(waits),
    C(history_id).
  returned: for finish, and for begin of a converged host
  type: dict
history:
  description: The applies on record, oldest first, each with C(id), C(finished), C(lock), C(packages), C(verified),
    C(simulated).
  returned: for history
  type: list
  elements: dict
current:
  description: The apply that made the present state; empty when there is none, or when one has not finished.
  returned: for history
  type: str
known:
  description: Whether there is a record of anything done here.
  returned: for removal
  type: bool
remove:
  description: Packages that gpusetup installed.
  returned: for removal
  type: list
  elements: str
left_over:
  description: Differences to the package set before the first apply.
  returned: for clean
  type: dict
"""

import shutil
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import lifecycle, params

CODE = "/run/gpusetup-code"
"""Where gpu_shared_code keeps the code of modules."""


def act(state: lifecycle.Lifecycle, mode: str) -> Dict[str, Any]:
    """Return the result of one mode."""
    if mode == "begin":
        return state.begin()
    if mode == "finish":
        return dict(state.finish() if not state.check else {}, changed=False)
    if mode == "verified":
        state.verified()
        return {"changed": False}
    if mode == "history":
        return dict(state.history(), changed=False)
    if mode == "removal":  # a host without a record has nothing to undo
        return dict(state.removal(), changed=False)
    if mode == "stop":
        stopped = state.stop_services()
        return {"changed": bool(stopped), "stopped": stopped}
    return state.clean()


def tell_the_log(module: AnsibleModule, result: Dict[str, Any]) -> None:
    """Log on the host who changes it, and when that ends; Ansible's own log entry names no person."""
    mode = module.params["mode"]
    if mode in ("begin", "removal") and (result.get("known") or not result.get("converged", True)):
        who = module.params["owner"]
        run, user, controller = (who.get(key) or "unknown" for key in ("run", "user", "controller"))
        what = "apply" if mode == "begin" else "removal"
        module.log(f"gpusetup {what} begins: run {run} by {user} from {controller}")
    elif mode in ("finish", "clean"):
        module.log(f"gpusetup {'apply' if mode == 'finish' else 'removal'} is over")


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec=params.spec(
            mode={
                "type": "str",
                "required": True,
                "choices": ["begin", "finish", "verified", "history", "removal", "stop", "clean"],
            },
            manager={"type": "str", "required": True, "choices": ["apt", "dnf", "zypper"]},
            wanted={"type": "dict", "default": {}},
            lock={"type": "dict", "default": {}},
            verified={"type": "dict", "default": {}},
            id={"type": "str", "default": ""},
            planned={"type": "list", "elements": "str", "default": []},
            keep={"type": "int", "default": 10},
            python={"type": "dict"},
            environments={"type": "list", "elements": "dict", "default": []},
            remove={"type": "list", "elements": "str", "default": []},
            driver_version={"type": "str", "default": ""},
            driver_module={"type": "str", "default": ""},
            kernels={"type": "list", "elements": "str", "default": []},
            ran={"type": "list", "elements": "str"},
            pending={"type": "dict", "default": {}},
            waits={"type": "dict", "default": {}},
            owner={"type": "dict", "default": {}},
        ),
        supports_check_mode=True,
    )
    with params.failing(module):
        request = dict(params.plain(module), token=module.params["host"]["owner"])
        state = lifecycle.Lifecycle(request, module.check_mode)
        if module.params["mode"] not in ("begin", "removal", "history"):
            state.hold()
        result = act(state, module.params["mode"])
    if not module.check_mode:
        tell_the_log(module, result)
    try:
        module.exit_json(diff=state.ledger.diffs, **result)
    finally:  # not earlier: exit_json still loads code from there
        if module.params["mode"] == "clean" and not module.check_mode:
            shutil.rmtree(CODE, ignore_errors=True)


if __name__ == "__main__":
    main()
