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
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_state]
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
    if mode == "begin":
        return state.begin()
    if mode == "finish":
        return dict(state.finish(), changed=False)
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


SPEC = {
    "mode": params.choice(
        "C(begin) opens an apply, C(finish) records it, C(verified) keeps what the verification of this "
        "apply found. C(history) returns the recorded applies. C(removal) returns what removal has to do,"
        " C(stop) restores services, C(clean) restores files, links and the Python environment, and "
        "deletes the record.",
        ["begin", "finish", "verified", "history", "removal", "stop", "clean"],
    ),
    "manager": params.choice("The host's package manager.", ["apt", "dnf", "zypper"]),
    "wanted": params.table(
        "Everything that was requested; its digest shows whether two applies want the same.", default={}
    ),
    "lock": params.table("The lock, recorded as it is.", default={}),
    "verified": params.table("What the verification found, for C(verified).", default={}),
    "id": params.text("Identifier of this apply."),
    "planned": params.texts(
        "The apply on record when this one was planned, and when it finished: C(begin) refuses another one."
    ),
    "keep": params.number("How many applies the history keeps.", 10),
    "python": params.table("C(path), C(packages), C(adopted) of the Python environment, when there is one."),
    "environments": params.texts("The same of each named environment that was made, for C(finish).", elements="dict"),
    "remove": params.texts("Patterns of packages that must not be installed."),
    "driver_version": params.text("NVIDIA's version that must run."),
    "driver_module": params.text("Flavour that must run."),
    "kernels": params.texts("Kernels for which the module must be there; empty is the one that boots next."),
    "ran": params.texts(
        "For C(finish), which parts of O(wanted) this run did; all of them where it is not given. What "
        "earlier runs recorded of the others stays.",
        default=None,
    ),
    "pending": params.table(
        "What waits for a reboot beside the driver, for C(finish), as a list of texts for each part.", default={}
    ),
    "waits": params.table(
        "What waits for something else, for C(finish), as a list of texts for each part.", default={}
    ),
    "owner": params.table(
        "Who changes the host, C(controller), C(user), C(run), C(home) (which controller's runs these "
        "are), C(alive) (its runs that go on) and C(turns) (in how many it goes through its hosts). "
        "C(begin) and C(removal) make them the owner of the host, and return the token that later steps "
        "must pass.",
        default={},
    ),
}


def main() -> None:
    module = AnsibleModule(argument_spec=params.spec(SPEC), supports_check_mode=True)
    with params.failing(module):
        request = dict(params.plain(module), token=module.params["host"]["owner"])
        state = lifecycle.Lifecycle(request, module.check_mode)
        if module.params["mode"] not in ("begin", "removal", "history"):
            state.hold()
        try:
            result = act(state, module.params["mode"])
        except BaseException:
            state.let_go()
            raise
    if not module.check_mode:
        tell_the_log(module, result)
    try:
        module.exit_json(diff=state.ledger.diffs, **result)
    finally:  # not earlier: exit_json still loads code from there
        if module.params["mode"] == "clean" and not module.check_mode:
            shutil.rmtree(CODE, ignore_errors=True)


if __name__ == "__main__":
    main()
