"""Fabric manager runs where NVSwitches are, and has the driver's exact version.

One patch release apart, it refuses to talk to the driver and the fabric stays down. On boards without NVSwitch the
service fails to start; that is as it should be and says nothing about the driver.

To do: install `nvidia-fabricmanager` of the driver's full version, hold both, `systemctl enable --now` it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check(
    "fabric.manager",
    "Fabric manager fits the driver",
    needs=("gpu",),
    seconds=lambda machine: machine.took("fabric_manager", "facts"),
)
def judge(machine: Machine) -> Finding:
    """Compare version and state, where NVSwitches make it needed."""
    answer = machine.command("fabric_manager")
    match = re.search(r"(\d+\.\d+(?:\.\d+)?)", answer.get("stdout", ""))
    version = match.group(1) if match else None
    unit = machine.service("fabricmanager")
    installed = version is not None or unit is not None
    if not machine.nvswitch:
        if any(gpu.text("fabric/state") for gpu in machine.gpus):
            return Finding("unsupported", "another machine manages the fabric", version)
        note = "; fabric manager is installed but not needed" if installed else ""
        return Finding("unsupported", f"no NVSwitch here{note}", version)
    if not installed:
        return Finding(
            "fail", "this machine has NVSwitches, but fabric manager is not installed", None, machine.module_version
        )
    if version and machine.module_version and version != machine.module_version:
        return Finding(
            "fail", f"fabric manager is {version}, the driver {machine.module_version}", version, machine.module_version
        )
    if unit is not None and unit["active"] != "active":
        state = unit["active"] or "not known to systemd"
        return Finding("fail", f"{unit['unit']} is {state}", version, machine.module_version)
    if unit is not None and unit["enabled"] not in (None, "enabled", "static"):
        return Finding(
            "warn",
            f"is running, but is {unit['enabled']}: it will not start at the next boot",
            version,
            machine.module_version,
        )
    return Finding("pass", f"{version or 'version unknown'}, active", version, machine.module_version)
