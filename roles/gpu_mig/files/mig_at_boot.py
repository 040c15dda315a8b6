"""The program of the unit `gpusetup-mig`: restores the recorded MIG layout, because no instance survives a reboot.

Hopper and later also lose MIG mode when the driver is unloaded, Ampere keeps it: the actual mode is checked.
"""

import json
import sys
import time

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import mig, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import mig as judge
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import mig as probe

_PATIENCE = 60
"""Seconds within which the driver must answer."""


def main(path: str) -> int:
    """Apply the recorded layouts; return the unit's exit status."""
    env = process.environment()
    with open(path, encoding="utf-8", errors="replace") as stream:
        layouts = json.load(stream)
    until = time.monotonic() + _PATIENCE
    while probe.look(process.smi(env)) is None and time.monotonic() < until:
        time.sleep(2)
    try:
        result = mig.lay(layouts, env, boot=True)
    except HostFailure as failure:
        sys.stderr.write(failure.text() + "\n")
        return 1
    for address, layout in sorted(result["made"].items()):
        sys.stdout.write(f"{address}: {judge.text_of(layout)}\n")
    for reason in result["reboot"]:
        sys.stderr.write(reason + "\n")
    return 1 if result["reboot"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
