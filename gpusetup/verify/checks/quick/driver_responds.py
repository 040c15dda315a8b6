"""nvidia-smi answers within its deadline.

The first thing that stops when a driver is broken, and the first that hangs: it runs under a deadline and is
killed. The answer is taken from XML and named fields, never from the banner, whose labels changed between releases.

| what it says | what it means |
|---|---|
| Driver/library version mismatch | user space was upgraded under the loaded module: reboot, or unload and load it |
| couldn't communicate with the NVIDIA driver | the module is not loaded: build failed, Secure Boot, or nouveau |
| No devices were found | the module took no GPU: wrong flavour, unsupported GPU, or it fell off the bus |
| Insufficient Permissions | this user may not open /dev/nvidia* |

To do: what the table says; `gpusetup doctor` looks further.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("driver.responds", "nvidia-smi answers", needs=("gpu",), seconds=lambda machine: machine.took("smi"))
def judge(machine: Machine) -> Finding:
    """Name what nvidia-smi said instead of an answer."""
    answer = machine.command("smi")
    said = f"{answer.get('stdout', '')}\n{answer.get('stderr', '')}".strip()
    seconds = answer.get("seconds")
    if machine.gpus:
        slow = (seconds or 0) > 10
        persistence = "; persistence mode keeps the driver loaded" if slow else ""
        return Finding("warn" if slow else "pass", f"answered in {seconds:.1f} s{persistence}", seconds, None, 10, "s")
    if answer.get("error") in ("timeout", "timeout-unkillable"):
        stuck = (
            "; it is stuck in the driver and ends only with a reboot" if answer["error"].endswith("unkillable") else ""
        )
        return Finding(
            "fail",
            f"no answer within {answer.get('deadline')} s; killed{stuck}",
            seconds,
            None,
            answer.get("deadline"),
            "s",
        )
    if answer.get("error") == "missing":
        return Finding("fail", "nvidia-smi not found: no driver is installed")
    if "version mismatch" in said:
        return Finding(
            "fail", "Driver/library version mismatch: reboot, or unload and load the module (see driver.version)"
        )
    if "couldn't communicate" in said or "not loaded" in said:
        module = "loaded" if "nvidia" in machine.facts.get("modules", ()) else "not loaded"
        return Finding("fail", f"the kernel module does not answer: it is {module} (see driver.module, nouveau.absent)")
    if "No devices were found" in said:
        return Finding("fail", "the driver is loaded but uses no GPU (see gpu.count, driver.flavour, kernel.xid)")
    if re.search("insufficient permissions", said, re.IGNORECASE):
        return Finding("fail", "this user may not open /dev/nvidia* (see device.files)")
    last = said.splitlines()[-1][:160] if said else "it printed nothing"
    return Finding("fail", f"nvidia-smi exited with {answer.get('rc')}: {last}")
