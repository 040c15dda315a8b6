"""Is the host still what the last finished apply left? The judge's verdict over the probe's facts, before an apply
begins.
"""

import os
from typing import Any, Dict, List

from ..gpu_judge import drift
from ..gpu_probe import facts as probe
from .machine import Machine


def deviations(folder: str, machine: Machine, request: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return what is no longer as it was left: [{"what", "is", "was"}]."""
    state_file = os.path.join(folder, "state.json")
    facts = probe.collect(machine.host, machine.simulated, with_candidates=False, state_file=state_file)
    record = facts["state"] or {}
    found: List[Dict[str, Any]] = [
        {"what": item.what, "was": item.was, "is": item.now}
        for item in drift.differences(facts, record)
        if item.mend != "hand"
    ]
    installed = facts["packages"]["installed"]
    unwanted = drift.unwanted(installed, request["remove"], record.get("packages") or ())
    return found + [{"what": "package " + name, "was": None, "is": installed[name]} for name in unwanted]
