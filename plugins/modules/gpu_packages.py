#!/usr/bin/python
"""Ansible module: one package transaction, detached, proven, held; or the host stays as it was."""

DOCUMENTATION = r"""
module: gpu_packages
short_description: Bring a host to an exact set of packages in one transaction
description:
  - Waits for other users of the package manager and names them, finishes an interrupted dpkg, refreshes the lists,
    refuses transitional packages and removals that nobody allowed, installs, changes and removes in one transaction.
  - Proves that the kernel module is there (the module file, not what DKMS says). A build that fails brings the packages
    back to what they were and returns the compiler's first error.
  - Runs detached. A cut connection does not stop it; the same call joins it. Repeat the call until C(finished) is true.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_packages]
attributes:
  check_mode:
    description: Tells what would change.
    support: full
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Bring the host to the exact packages
  gpusetup.stack.gpu_packages:
    manager: apt
    packages:
      - {name: nvidia-driver, version: 535.309.01-1~deb12u1}
    driver_version: 535.309.01
    driver_packages: [nvidia-driver]
    hold: ["*nvidia*", libcuda1]
  register: done
  until: done.finished
  retries: 700
  delay: 0
"""

RETURN = r"""
finished:
  description: Whether the transaction has ended; repeat the call while it is false.
  returned: always
  type: bool
progress:
  description: C(step), C(message), C(percent) of a running transaction.
  returned: always
  type: dict
difference:
  description: C(installed), C(removed), C(moved) packages, from the whole set before and after.
  returned: when finished
  type: dict
packages:
  description: The wanted packages in their installed versions.
  returned: when finished
  type: dict
held:
  description: Packages that gpusetup holds.
  returned: when finished
  type: list
  elements: str
build:
  description: The compiler's first error and the end of the build log.
  returned: when a kernel module build failed
  type: dict
"""

from typing import Any, Dict, Tuple

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import jobs, params, planning, transaction
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import packages as package_sets
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import versions


def outlook(request: Dict[str, Any]) -> Tuple[bool, Dict[str, str]]:
    host = planning.manager(dict(request, driver_version=""))
    installed = host.installed()
    wishes, removals = planning.wanted(request, installed, host.architecture())
    state = Ledger(request["state_dir"]).state
    unmet = package_sets.unmet(wishes + planning.lost(request, installed, state, wishes), installed)
    before = [
        "{} {}".format(package_sets.key(wish), versions.version_of(installed, package_sets.key(wish)) or "-")
        for wish in unmet
    ]
    after = ["{} {}".format(package_sets.key(wish), wish["version"] or "(newest)") for wish in unmet]
    before += [f"{name} {installed[name]}" for name in removals]
    after += [f"{name} -" for name in removals]
    released = sorted(set(state["holds"] or []) & set(host.held())) if not request["hold"] else []
    diff = {
        "before_header": "packages",
        "after_header": "packages",
        "before": "\n".join([*before, ""]),
        "after": "\n".join([*after, ""]),
    }
    return bool(unmet or removals or released), diff


SPEC = {
    **params.TRANSACTION,
    "poll": params.number("Longest wait of one call in seconds.", 10),
    "fetched": params.text(
        "C(fetched) of a look just before. apt is given its package lists instead of fetching them, if "
        "the sources are the same."
    ),
}


def main() -> None:
    module, request = params.opened(SPEC)
    wait, fetched = request.pop("poll"), request.pop("fetched")  # neither is part of the running job's identity
    with params.failing(module, finished=True, progress={}):
        package_sets.merge(request["packages"])
        if module.check_mode:
            changed, diff = outlook(request)
            module.exit_json(changed=changed, finished=True, diff=diff, progress={})
        job = jobs.Job(request["state_dir"], "packages", request)
        status = job.start_or_join(lambda running: transaction.Transaction(running, request, fetched).run(), wait)
    params.follow(module, status, job.log_path)


if __name__ == "__main__":
    main()
