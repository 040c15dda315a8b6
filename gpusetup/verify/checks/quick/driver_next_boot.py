"""The kernel that boots next has a module of the same driver.

A kernel update brings a kernel whose modules must be built by DKMS, or come prebuilt. Where that did not happen, all is
well until the next boot, and then the GPU is gone. The module file of that kernel is read, not what DKMS says.

To do: `gpusetup apply` builds it, or chooses prebuilt modules again; by hand `dkms autoinstall -k KERNEL` with that
kernel's headers installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.components import judge as verdicts
from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check(
    "driver.next_boot", "The next boot has the driver", needs=("gpu",), seconds=lambda machine: machine.took("facts")
)
def judge(machine: Machine) -> Finding:
    """Compare the module on disk for that kernel with the one that is loaded."""
    facts, loaded = machine.facts, machine.module_version
    kernel = facts.get("kernel") or {}
    following, installed = kernel.get("next"), kernel.get("installed") or ()
    if not following or not any(item["release"] == following for item in installed):
        return Finding("skip", "not checked: which kernel boots next, or its files, could not be read")
    found = verdicts.driver.module_of(facts, following)
    wanted = machine.wanted.version("driver") or loaded
    if found is None:
        if loaded is None and machine.wanted.version("driver") is None:
            return Finding("skip", "not checked: no driver is installed")
        return Finding(
            "fail", f"kernel {following} boots next, and has no nvidia module: the GPU would be gone", None, wanted
        )
    version = found.get("version")
    problem = verdicts.driver.module_problem(found, following, verdicts.driver.Wish(wanted or ""))
    if problem:
        return Finding("fail", f"{problem}; it is loaded at the next boot", version, wanted)
    same = "" if following == kernel.get("running") else f" (kernel {kernel.get('running')} runs now)"
    return Finding("pass", f"kernel {following} has {version or 'a module'}{same}", version, wanted or version)
