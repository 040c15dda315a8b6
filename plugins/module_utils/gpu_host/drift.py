"""Is the host still what the last finished apply left? Everything in one look, cheap enough for every second run."""

import os

from ..gpu_judge import versions
from . import kernel_module, nouveau, planning, venv
from .dkms import proof


def deviations(ledger, machine, request):
    """Return what is no longer as it was left: [{"what", "is", "was"}]."""
    state, found = ledger.state, []
    expect = state["expect"]
    host = planning.manager({"manager": request["manager"], "network": request["network"]})
    installed = host.installed()
    for name, version in sorted(state["packages"].items()):
        now = versions.version_of(installed, name, version)
        if now != version:
            found.append({"what": "package " + name, "was": version, "is": now})
    held = set(host.held())
    for name in state["holds"]:
        if name not in held:
            found.append({"what": "hold of " + name, "was": "held", "is": "free"})
    for pattern in request["remove"]:
        for name in sorted(installed):
            if versions.matches(name, [pattern]) and name not in state["packages"]:
                found.append({"what": "package " + name, "was": None, "is": installed[name]})
    for path, became in ledger.changed_files().items():
        found.append({"what": "file " + path, "was": "as written", "is": became})
    found += _modules(machine, expect)
    if expect.get("nouveau_image") and expect["nouveau_image"] != nouveau.image_stamp(machine):
        found.append({"what": "initramfs", "was": expect["nouveau_image"], "is": nouveau.image_stamp(machine)})
    for unit, wanted in sorted(state["services"].items()):
        if wanted.get("enabled") and not os.path.lexists(wanted.get("link") or "/"):
            found.append({"what": "service " + unit, "was": "enabled", "is": "disabled"})
    if expect.get("python"):
        problem = venv.problem(expect["python"])
        if problem:
            found.append({"what": "python " + expect["python"]["path"], "was": "as installed", "is": problem})
    return found


def _modules(machine, expect):
    version, flavour = expect.get("driver_version"), expect.get("driver_module")
    if not version:
        return []
    found = []
    for kernel in machine.wanted_kernels(expect.get("kernels") or []):
        problem = proof(machine.module_on_disk(kernel), kernel, version, flavour)
        if problem:
            found.append({"what": "kernel module", "was": version, "is": problem})
    for reason in kernel_module.reboot_reasons(machine, version, flavour, expect.get("kernels") or []):
        found.append({"what": "reboot", "was": "done", "is": reason})
    return found
