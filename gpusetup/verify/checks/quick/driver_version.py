"""The loaded module, the libraries on disk and the lock are one version.

Unattended upgrades replace libraries under a module that stays loaded; every new program then fails with
`Driver/library version mismatch` while programs already running go on. Compared here: the version that the loaded
module reports in /proc, the version in the file names of libcuda and libnvidia-ml, the module on disk that loads at
the next boot, the GSP firmware, and the driver that the lock names.

To do: reboot, or stop everything that uses the GPU and reload the module; then hold the packages (`gpusetup apply`
does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.components import judge as verdicts
from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.model.verdict import Verdict
    from gpusetup.verify.machine import Machine


@check(
    "driver.version",
    "Module, libraries and lock agree",
    needs=("gpu",),
    seconds=lambda machine: machine.took("facts"),
)
def judge(machine: Machine) -> Finding:
    """Compare all versions with the module that is loaded."""
    loaded = machine.module_version
    wanted = machine.wanted.version("driver")
    libraries = {version for versions in machine.library_versions.values() for version in versions}
    if loaded is None and machine.gpus and not machine.pci_gpus:
        return Finding("unsupported", "no kernel module of its own: the driver is the host system's (WSL)")
    if loaded is None:
        said = machine.command("smi").get("stdout", "") + machine.command("smi").get("stderr", "")
        problem = "the kernel module is not loaded" if "mismatch" not in said else "Driver/library version mismatch"
        return Finding("fail", problem, None, wanted)
    others = verdicts.driver.other_libraries(machine.facts, loaded)
    if others:
        both = f"libraries are {', '.join(others)}" + (" beside the right ones" if loaded in libraries else "")
        verdict: Verdict = "warn" if loaded in libraries else "fail"
        return Finding(
            verdict,
            f"the loaded module is {loaded}, {both}: Driver/library version mismatch; reboot or reload the module",
            loaded,
            wanted or others[0],
        )
    if wanted and verdicts.driver.loaded_problem(machine.facts, verdicts.driver.Wish(wanted)):
        return Finding("fail", f"the loaded module is {loaded}, the lock says {wanted}", loaded, wanted)
    on_disk = machine.driver.get("module")
    if on_disk and on_disk != loaded:
        return Finding(
            "warn", f"{loaded} is loaded, {on_disk} is on disk and will be loaded at the next boot", loaded, on_disk
        )
    firmware = {version for gpu in machine.gpus if (version := gpu.text("gsp_firmware_version"))}
    if firmware - {loaded}:
        return Finding(
            "warn", f"GSP firmware is {', '.join(sorted(firmware))}, the module {loaded}", loaded, wanted or loaded
        )
    parts = ["module"] + (["libraries"] if libraries else []) + (["lock"] if wanted else [])
    if not libraries:
        return Finding("warn", f"the module is {loaded}; no driver library found to compare with", loaded, wanted)
    return Finding("pass", f"{', '.join(parts)}: {loaded}", loaded, wanted or loaded)
