#!/usr/bin/python
"""Ansible module: unpack the probe that came with the call, run it, return its document. Judges and changes nothing."""

DOCUMENTATION = r"""
module: gpu_verify
short_description: Observe and measure a host's GPUs
description:
  - The action plugin of the same name sends the probe along and judges its observations, in one round trip.
  - Every program that the probe starts has a deadline, and so has the probe.
extends_documentation_fragment: gpusetup.stack.options.gpu_verify
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Prove that the stack works
  gpusetup.stack.gpu_verify:
    level: smoke
"""

RETURN = r"""
observations:
  description: The probe's document, C(gpusetup/observations/2).
  returned: when the host was examined
  type: dict
postponed:
  description: The run that is changing the host, so that nothing was examined.
  returned: with C(when_idle), while another run is changing the host
  type: str
results:
  description: Verdicts, when the controller can judge.
  returned: with O(fail=true), when the host was examined
  type: list
"""

import contextlib
import json
import os
import sys
from typing import Any, Dict, Optional, Tuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import owner, params
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import commands

DEADLINES = {"quick": 90, "smoke": 1080, "full": 2100, "stress": 2100}


def request(parameters: Dict[str, Any]) -> Dict[str, Any]:
    """Return the probe's request, which it reads from standard input."""
    asked = {
        "level": parameters["level"],
        "minutes": parameters["minutes"],
        "components": parameters["components"],
        "parent": os.getpid(),
    }
    for name in ("python", "cuda_home", "gpus", "when_idle", "budget", "simulated_root"):
        if parameters[name]:
            asked[name] = parameters[name]
    if parameters["hosts"]:
        asked["hosts"] = dict(parameters["hosts"], token=parameters["token"])
    return asked


def unpack(program: str, folder: str) -> None:
    for place, text in params.program(program).items():
        path = os.path.join(folder, place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as target:
            target.write(text.encode("utf-8"))


def run(folder: str, asked: Dict[str, Any], deadline: float) -> Tuple[Optional[Dict[str, Any]], Dict[str, Any]]:
    """Run the probe; return its document, or why there is none, and whether the probe failed by itself."""
    argv = [sys.executable, os.path.join(folder, "gpu_measure", "observe.py")]
    found = commands.ended(argv, dict(os.environ), deadline, json.dumps(asked).encode("utf-8"))
    if found.code is None:
        unstarted = found.error in ("missing", "cannot-start")
        why = "could not be started" if unstarted else f"was killed after {deadline:g} s"
        return None, {"msg": f"the probe {why}"}
    try:
        return json.loads(found.out.decode("utf-8", "replace").strip().splitlines()[-1]), {}
    except (ValueError, IndexError):
        told = f"the probe ended with {found.code}: {found.err.decode('utf-8', 'replace')[-800:]}"
        return None, {"msg": told, "own_fault": found.code >= 0}  # not by a signal


SPEC = {
    "level": params.choice("How deep to look.", ["quick", "smoke", "full", "stress"], "smoke"),
    "python": params.text("Absolute path of the interpreter that holds CuPy."),
    "cuda_home": params.text("Folder of the CUDA toolkit."),
    "gpus": params.texts("Indexes of the GPUs to run on; empty means all.", elements="int"),
    "minutes": params.number("How long the level C(stress) works.", 5, type="float"),
    "components": params.texts("Frameworks that are part of the stack."),
    "hosts": params.table("This host's part in a measurement over several hosts.", default={}),
    "token": params.text("Shared secret of the hosts of such a measurement.", no_log=True),
    "when_idle": params.flag(
        "Whether to keep other runs off the host, and to look without measuring (level C(quick)) while a GPU is "
        "in use. A host that another run of gpusetup is changing is not examined; C(postponed) names that"
        " run."
    ),
    "budget": params.number(
        "Seconds after which the measurement ends and only level C(quick) is returned; 0 means no limit.",
        0,
        type="float",
    ),
    "simulated_root": params.text("A folder on the host that holds a captured machine; nothing is then run on a GPU."),
    "fail": params.flag("Whether a failed check fails the task (judged by the action plugin).", True),
    "program": params.text("What measures, packed; filled in by the action plugin."),
}


def main() -> None:
    module = AnsibleModule(argument_spec=params.spec(SPEC, host=False), supports_check_mode=True)
    # The invocation in the result omits the program and the token.
    shown = {name: value for name, value in module.params.items() if name not in ("program", "token")}
    invocation = {"module_args": shown}
    if module.params["simulated_root"] and not os.path.isdir(os.path.join(module.params["simulated_root"], "sys")):
        module.fail_json(
            msg="simulated_root {} holds no captured machine".format(module.params["simulated_root"]),
            invocation=invocation,
        )
    try:
        unpack(module.params["program"], module.tmpdir)
    except (OSError, ValueError) as failure:
        module.fail_json(
            msg=f"cannot unpack the probe: {getattr(failure, 'strerror', None) or failure}", invocation=invocation
        )
    deadline: float = DEADLINES[module.params["level"]]
    if module.params["level"] == "stress":
        deadline += 60 * module.params["minutes"]
    try:
        with owner.measuring() if module.params["when_idle"] and os.geteuid() == 0 else contextlib.ExitStack():
            document, problem = run(module.tmpdir, request(module.params), deadline)
    except HostFailure as other:
        module.exit_json(changed=False, postponed="{message}: {context}".format(**other.fields), invocation=invocation)
    if problem:
        module.fail_json(invocation=invocation, **problem)
    module.exit_json(changed=False, observations=document, invocation=invocation)


if __name__ == "__main__":
    main()
