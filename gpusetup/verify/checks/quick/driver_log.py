"""The driver started without complaints in the kernel log.

Messages that explain a GPU that is not there: initialisation failed, GSP firmware did not start, the module and the
GPU do not fit, another driver holds the device, I/O memory could not be mapped.

To do: the message names the cause; `gpusetup doctor` looks it up.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

COMPLAINTS = (
    (r"RmInitAdapter failed", "fail", "the driver could not initialise a GPU (RmInitAdapter failed)"),
    (r"requires use of the NVIDIA open kernel modules", "fail", "this GPU needs the open kernel modules"),
    (r"not supported by (the )?open", "fail", "this GPU is not supported by the open kernel modules"),
    (
        r"installed in this system is\s+not supported|No NVIDIA GPU found",
        "fail",
        "this driver branch does not support a GPU in this machine",
    ),
    (r"already bound to nouveau|conflicting driver|bound to vfio", "fail", "another driver holds a GPU"),
    (
        r"This PCI I/O region assigned to your NVIDIA device is invalid",
        "fail",
        "the firmware gave the GPU no usable address range: enable Above 4G decoding",
    ),
    (r"API mismatch", "fail", "a program used another driver version than the module: version mismatch"),
    (
        r"GSP.*(?:failed|timeout|Timeout)|Timeout waiting for RPC from GSP",
        "fail",
        "the GPU's system processor (GSP) does not answer",
    ),
    (r"NVRM: .*loading out-of-tree|taints kernel", "pass", ""),
)


@check("driver.log", "The driver started cleanly", needs=("gpu",), seconds=lambda machine: machine.took("kernel_log"))
def judge(machine: Machine) -> Finding:
    """Search the log for known complaints."""
    log = machine.collected("kernel_log")
    if log.get("error") or log.get("source") is None:
        return Finding("skip", f"not checked: {log.get('error') or 'no kernel log'}")
    for pattern, verdict, text in COMPLAINTS:
        if verdict == "fail" and (found := [line for line in log.get("lines", []) if re.search(pattern, line)]):
            return Finding("fail", f"{text} ({len(found)} lines)")
    return Finding("pass", "no known driver error")
