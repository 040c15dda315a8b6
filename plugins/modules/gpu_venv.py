#!/usr/bin/python
"""Ansible module: the Python environment of the stack."""

DOCUMENTATION = r"""
module: gpu_venv
short_description: Make a virtual environment with exactly these requirements, or adopt an interpreter that has them
description:
  - Each set of requirements gets its own folder, built beside the one in use; O(path) is a symbolic link that is
    switched in one step once pip has finished and the versions were checked. On failure the old environment stays in
    use.
  - Runs detached; repeat the call until C(finished) is true.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_venv]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: CuPy
  gpusetup.stack.gpu_venv:
    requirements: ["cupy-cuda12x==13.4.0"]
  register: environment
  until: environment.finished
  retries: 700
  delay: 0
"""

RETURN = r"""
python:
  description: C(path), C(packages) and C(adopted), for M(gpusetup.stack.gpu_state).
  returned: when finished
  type: dict
interpreter:
  description: The Python to run programs with.
  returned: when finished
  type: str
"""

import os
from typing import Any, Dict

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import jobs, params, process, venv
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge.versions import pins
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.environment import changeable


def adopt(module: Any, request: Dict[str, Any]) -> None:
    """Compare an existing interpreter with the pins; root does not start one that others can change."""
    theirs = changeable(request["adopt"]) if os.geteuid() == 0 else ""
    if theirs:
        raise HostFailure(
            "GS-337",
            "users other than root can change the Python to adopt",
            request["adopt"],
            "others can change " + theirs,
            "give it to root (chown -R root:root, chmod -R go-w), "
            "or leave gpu_python_adopt empty to get an own environment",
        )
    lacking = venv.compare(request["adopt"], pins(request["requirements"]), process.environment(request["network"]))
    if lacking:
        raise HostFailure(
            "GS-485",
            "the Python to adopt does not have the requested packages",
            request["adopt"],
            "; ".join(lacking),
            "name another interpreter, or leave gpu_python_adopt empty to get an own environment",
        )
    python = {"path": request["adopt"], "packages": pins(request["requirements"]), "adopted": True}
    module.exit_json(changed=False, finished=True, progress={}, python=python, interpreter=request["adopt"])


def build(request: Dict[str, Any], running: jobs.Job) -> Dict[str, Any]:
    environment = venv.Environment(request, running.tell, running.log)
    link = venv.Link(environment.path, environment)
    changed = Ledger(request["state_dir"]).change(link, os.path.basename(environment.folder))
    return dict(described(environment), changed=changed)


def described(environment: venv.Environment) -> Dict[str, Any]:
    return {"python": environment.expected(), "interpreter": os.path.join(environment.path, "bin", "python")}


SPEC = {
    "path": params.text("The link that names the environment.", "/opt/gpusetup", type="path"),
    "interpreter": params.text("Python to make it from.", "/usr/bin/python3"),
    "requirements": params.texts("Lines of a requirements file, index lines and hashes included."),
    "find_links": params.text("Folder of wheels to use instead of any index."),
    "signers": params.texts(
        "Fingerprints of those who sign the bundle that O(find_links) belongs to; then every wheel must "
        "have the digest that its signed manifest names."
    ),
    "installer": params.choice(
        "What installs. V(best) is uv where root has one and pip is not configured for an index of its "
        "own, else pip; it leaves C(pylock.toml) in the environment, with everything that was installed "
        "and its SHA-256.",
        ["pip", "best"],
        "pip",
    ),
    "adopt": params.text("Existing interpreter to compare with the pins instead of making an environment."),
    "poll": params.number("Longest wait of one call in seconds.", 10),
}


def main() -> None:
    module, request = params.opened(SPEC)
    wait = request.pop("poll")
    with params.failing(module, finished=True, progress={}):
        if request["adopt"]:
            adopt(module, request)
        environment = venv.Environment(request)
        job = jobs.Job(request["state_dir"], "python", request)
        begun = Ledger(request["state_dir"]).opened(venv.Link.kind, environment.path)
        ready = environment.ready() and not begun and not job.joinable()
        if ready or module.check_mode:
            module.exit_json(changed=not ready, finished=True, progress={}, **described(environment))
        status = job.start_or_join(lambda running: build(request, running), wait)
    params.follow(module, status, job.log_path)


if __name__ == "__main__":
    main()
