"""Checks: is there a GPU and a driver for it, and does the kernel run that driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.components import judge
from gpusetup.doctor import builds
from gpusetup.doctor.findings import findings
from gpusetup.doctor.look import Look, Outcome, cause, fine, unknown
from gpusetup.doctor.scan import scan
from gpusetup.resolve.naming import only_module
from gpusetup.versions import nv

if TYPE_CHECKING:
    from gpusetup.model.facts_machine import Gpu

_WHY_NOT_LOADED = frozenset(json.loads(Path(__file__).with_name("data").joinpath("not_loaded.json").read_bytes()))
"""Causes that keep the module from loading."""


def present(look: Look) -> Outcome:
    """Check that there are NVIDIA GPUs on PCI."""
    facts = look.facts
    if facts.gpus:
        held = [gpu for gpu in facts.gpus if gpu.bound and gpu.bound.startswith("vfio")]
        if len(held) == len(facts.gpus):
            shown = [f"{_name(gpu)} is bound to {gpu.bound}" for gpu in held]
            return cause("gpu-held-by-vfio", "every GPU is set aside for virtual machines", *shown)
        return fine(f"{len(facts.gpus)} on PCI: {_summary(facts.gpus)}")
    if look.guest == "wsl":
        return fine("WSL reaches the GPU through Windows, not through PCI")
    if look.guest == "jetson":
        return fine("a Jetson: its GPU is part of the processor, not on PCI")
    if facts.virtualisation.container is not None:
        if look.has_device("/dev/nvidiactl"):
            return fine("a container with the GPU's device files")
        kind = facts.virtualisation.container
        return cause("container-without-gpu", "this container was started without a GPU", f"{kind}: no /dev/nvidiactl")
    return cause("gpu-not-on-pci", "no NVIDIA GPU on PCI", "no device of vendor 10de with a display class")


def _name(gpu: Gpu) -> str:
    return f"{gpu.name or gpu.reported_name or gpu.pci_id} at {gpu.address}"


def _summary(gpus: tuple[Gpu, ...]) -> str:
    counts: dict[str, int] = {}
    for gpu in gpus:
        name = gpu.name or gpu.reported_name or gpu.pci_id
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{number} x {name}" if number > 1 else name for name, number in counts.items())


def installed(look: Look) -> Outcome:
    """Check that exactly one driver is installed."""
    if look.owner:
        return fine(f"it is that of {look.owner}: update it there; gpusetup installs none here")
    driver = look.facts.driver
    if driver is None or (driver.version is None and driver.loaded is None):
        if not look.facts.simulated and (refused := builds.refused(look.facts)) is not None:
            kind = "vgpu-guest-without-driver" if look.facts.vgpu_guest else "no-driver-fits"
            return cause(kind, "no NVIDIA driver is installed", *refused)
        if look.facts.nouveau.loaded:
            return cause(
                "driver-not-installed", "no NVIDIA driver is installed; nouveau runs the GPU", "nouveau is loaded"
            )
        return cause(
            "driver-not-installed", "no NVIDIA driver is installed", "no driver package, no module, no library"
        )
    origins = sorted({install.origin for install in driver.installs})
    if "runfile" in origins and len(origins) > 1:
        shown = [f"{install.origin}: {install.version or 'unknown version'}" for install in driver.installs]
        return cause("runfile-leftover", "a driver from a .run file overwrote packaged files", *shown)
    return fine(f"{driver.version} ({', '.join(origins) or 'origin unknown'})")


def flavour(look: Look) -> Outcome:
    """Check that this driver and its module flavour support these GPUs."""
    driver = look.facts.driver
    version = look.driver
    if look.owner or driver is None or version is None:
        return fine(f"{look.owner} decides that" if look.owner else "not known")
    kind = (driver.loaded.flavour if driver.loaded else None) or driver.flavour
    for gpu in look.facts.gpus:
        demands = builds.demands(gpu.pci_id, gpu.subsystem)
        if demands is None:
            continue
        shown = f"{_name(gpu)} is {demands.arch}; driver {version}, {kind or 'unknown'} modules"
        if kind == "open" and demands.module == "unsupported":
            return cause("open-module-pre-turing", only_module(demands), shown)
        if kind == "proprietary" and demands.module == "required":
            return cause("open-module-required", only_module(demands), shown)
        branch = nv(version).major
        if demands.min_branch is not None and branch < demands.min_branch:
            return cause("gpu-not-supported-by-driver", "the driver is older than this GPU", shown, pci_id=gpu.pci_id)
        if demands.last_branch is not None and branch > demands.last_branch:
            return cause("legacy-gpu-dropped", "the driver's branch gave this GPU up", shown, driver=version)
    modules = f", {kind} modules" if kind else ""
    return fine(f"{version}{modules}: right for {_summary(look.facts.gpus) or 'it'}")


def module(look: Look) -> Outcome:
    """Check that the running kernel has a module, and find the reason if it has none."""
    facts = look.facts
    if look.owner:
        return fine(f"{look.owner} brings it")
    if look.loaded is not None:
        return fine(f"module {look.loaded} is loaded")
    kernel = next((entry for entry in facts.kernel.installed if entry.release == facts.kernel.running), None)
    if kernel is not None and kernel.nvidia is not None:
        return fine(f"there is one for {kernel.release}")
    running = facts.kernel.running
    if log := _failed_build(look, running):
        return log
    if kernel is not None and not kernel.headers and any(entry.module.startswith("nvidia") for entry in facts.dkms):
        return cause(
            "dkms-headers-missing", f"no headers for {running}", f"no build folder for {running}", kernel=running
        )
    wanted = [entry for entry in facts.dkms if entry.module.startswith("nvidia")]
    shown = [f"dkms: {entry.module} {entry.version}, {entry.kernel or 'no kernel'}: {entry.state}" for entry in wanted]
    if any(entry.state == "failed" and entry.kernel in {None, running} for entry in wanted):
        return cause("dkms-build-failed", f"building the module for {running} failed", *shown, kernel=running)
    others = [entry.release for entry in facts.kernel.installed if entry.nvidia is not None]
    if others:
        shown.append(f"there is one for {', '.join(others)}")
    return cause("module-not-found", f"no NVIDIA module for the running kernel {running}", *shown)


def _failed_build(look: Look, running: str) -> Outcome | None:
    """Return the cause in the last build's log: its first compiler error."""
    for log in look.symptoms.builds:
        path, version, text = log.path, log.version, log.text
        if running not in text and "/build/" in path and "for kernel" in text:
            continue
        errors = [line.strip() for line in text.splitlines() if ": error: " in line or "fatal error: " in line]
        known = [found for found in findings(scan(text)) if found.kind == "root"]
        specific = [found for found in known if found.cause != "dkms-build-failed"]
        failed = f"building {version} for {running} failed"
        if specific:
            return cause(specific[0].cause, failed, path, *specific[0].evidence)
        if errors or known:
            return cause("dkms-build-failed", failed, path, *(errors[:1] or known[0].evidence))
    return None


def loaded(look: Look) -> Outcome:
    """Check that the module is loaded, and find what prevents it if not."""
    facts = look.facts
    if look.owner or look.loaded is not None:
        return fine(f"by {look.owner}" if look.owner else f"{look.loaded} is loaded")
    if facts.nouveau.loaded:
        shown = [
            "nouveau is loaded",
            *(f"{_name(gpu)} is held by nouveau" for gpu in facts.gpus if gpu.bound == "nouveau"),
        ]
        if any(way.id == "initramfs" for way in judge.driver.nouveau_ways(judge.probed(facts))):
            shown.append("the initramfs carries nouveau, so the next boot loads it again")
        return cause("nouveau-in-use", "nouveau holds the GPU", *shown)
    if told := _from_log(look):
        return told
    probed = judge.probed(facts)
    module = judge.driver.module_of(probed, facts.kernel.running)
    taken = judge.driver.taken(probed, module)
    if taken is False:
        problem = judge.driver.signature_problem(probed, module)
        shown = [
            f"{key.path} is not among the machine's keys" for key in facts.firmware.signing_keys if not key.enrolled
        ]
        return cause("secure-boot-rejected", problem, *(shown or [problem]))
    shown = ["nvidia is not in /proc/modules"]
    if taken is None and module is not None and module["signed"]:
        shown.append(
            f"it is signed by {module['signer'] or 'a key without a name'}; whether the kernel trusts it is unknown"
        )
    return cause("nvml-driver-not-loaded", "the module is there and is not loaded", *shown)


def _from_log(look: Look) -> Outcome | None:
    log = look.kernel_log
    if not log:
        return None
    for found in findings(scan(log)):
        if found.cause in _WHY_NOT_LOADED:
            return cause(found.cause, "the kernel's messages name the reason", *found.evidence)
    return None


def same_version(look: Look) -> Outcome:
    """Compare the loaded module with the libraries that programs load."""
    driver = look.facts.driver
    if look.owner or driver is None or driver.loaded is None:
        return fine(f"as {look.owner} has them") if look.owner else unknown("no module is loaded")
    if driver.mismatch or (driver.library and look.loaded and driver.library != look.loaded):
        shown = [f"loaded module: {look.loaded}", f"libraries: {driver.library}"]
        if driver.module:
            shown.append(f"module on disk: {driver.module}")
        return cause("nvml-version-mismatch", "the packages moved on under the loaded module", *shown)
    return fine(f"module and libraries are both {look.loaded}")
