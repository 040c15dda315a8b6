"""The container toolkit, when installed, has a CDI description of these GPUs and this driver.

`nvidia-cdi-refresh` writes /var/run/cdi/nvidia.yaml at install, upgrade and boot, but not when the driver is
changed under it: a container then mounts libraries that no longer exist. The description's devices and driver
version are compared with the machine.

To do: `systemctl restart nvidia-cdi-refresh.service`, or `nvidia-ctk cdi generate
--output=/var/run/cdi/nvidia.yaml`.
"""

import re

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Finding
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check


@check("container.toolkit", "Containers get these GPUs", needs=("gpu",), took="containers")
def judge(machine: Machine) -> Finding:
    """Judge the toolkit and its CDI description."""
    found = machine.collected("containers")
    answer = found.get("ctk") or {}
    if answer.get("error") == "missing":
        if machine.wanted.packages("containers"):
            return Finding("fail", "the lock contains the container toolkit, but it is not installed")
        return Finding("skip", "the container toolkit is not installed")
    if answer.get("rc") != 0:
        return Finding("fail", f"nvidia-ctk does not run: {str(answer.get('stderr'))[-120:]}")
    match = re.search(r"version (\d[\w.~-]*)", answer.get("stdout", ""))
    version = match.group(1) if match else None
    descriptions = [entry for entry in found.get("cdi", []) if entry.get("kind") == "nvidia.com/gpu"]
    if not descriptions:
        runtimes = (machine.facts.get("containers") or {}).get("configured", ())
        if runtimes:
            return Finding(
                "pass", f"toolkit {version}, by the {', '.join(runtimes)} runtime; no CDI description", version
            )
        return Finding("warn", f"toolkit {version} without a CDI description: containers get no GPU by CDI", version)
    for entry in descriptions:
        stale = [
            number
            for number in entry.get("driver_versions", [])
            if machine.module_version and number != machine.module_version
        ]
        if stale:
            return Finding(
                "fail",
                f"{entry['path']} describes driver {stale[0]}, {machine.module_version} is loaded",
                stale[0],
                machine.module_version,
            )
    devices = {name for entry in descriptions for name in entry.get("devices", []) if name.isdigit()}
    if machine.gpus and len(devices) < len(machine.gpus) and not any(map(machine.mig, machine.gpus)):
        return Finding(
            "warn",
            f"the CDI description has {len(devices)} of {counted(len(machine.gpus), 'GPU')}",
            len(devices),
            len(machine.gpus),
        )
    return Finding("pass", f"toolkit {version}, CDI describes {counted(len(devices), 'GPU')}", version)
