"""Checks of GPU, driver and kernel: are they there, do they fit, do the GPUs answer, are fabric and MIG in order."""

import json
import re

from gpusetup.components import judge
from gpusetup.doctor import builds
from gpusetup.doctor.catalogue import read_table
from gpusetup.doctor.findings import asked, current, findings
from gpusetup.doctor.look import Look, Outcome, cause, fine, notice, unknown
from gpusetup.doctor.scan import scan
from gpusetup.model.diagnosis import Finding
from gpusetup.model.facts_machine import Gpu
from gpusetup.resolve.naming import only_module
from gpusetup.versions import nv

_CAUSES: dict[str, list[str]] = json.loads(read_table("machine_causes.json"))
_WHY_NOT_LOADED, _BY_PROGRAMS = _CAUSES["keep the module from loading"], _CAUSES["are a program's"]
_STILL_MATTER, _EXPLAIN_SILENCE = _CAUSES["still matter"], _CAUSES["explain a silent GPU"]


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
        if "/dev/nvidiactl" in (look.symptoms.devices or {}):
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
    log = look.symptoms.kernel_log
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


_JETSON_DEVICES = ("/dev/nvgpu", "/dev/nvhost", "/dev/nvidia")


def _logged(look: Look) -> list[Finding]:
    log = current(look.symptoms.kernel_log or "", look.symptoms.resets)
    found = findings(scan(log)) if log else ()
    return [finding for finding in found if finding.kind != "notice"]


def _count(look: Look) -> int:
    return sum(1 for gpu in look.facts.gpus if gpu.uuid is not None)


def device_files(look: Look) -> Outcome:
    """Check that the device files exist and that this user may open them."""
    devices = look.symptoms.devices
    if devices is None:
        return unknown("the devices are simulated")
    if look.guest == "wsl":
        if "/dev/dxg" in devices:
            return fine("/dev/dxg is there")
        return cause("wsl-gpu-blocked", "Windows hands no GPU to WSL", "no /dev/dxg")
    if look.guest == "jetson":
        own = [path for path in devices if path.startswith(_JETSON_DEVICES)]
        return fine(own[0]) if own else unknown("the devices of a Jetson's GPU are not known to gpusetup")
    wanted = ["/dev/nvidiactl"]
    if look.symptoms.live:
        numbered = [path for path in devices if re.fullmatch(r"/dev/nvidia\d+", path)]
        wanted += [*(numbered or ["/dev/nvidia0"]), "/dev/nvidia-uvm"]
    missing = [path for path in wanted if path not in devices]
    absent = [f"no {path}" for path in missing]
    if missing and look.facts.virtualisation.container is not None:
        return cause("container-without-gpu", "no GPU was handed to this container", *absent)
    if missing:
        return cause("device-files-missing", "device files are missing", *absent)
    closed = [path for path in wanted if devices[path].open is False]
    if closed:
        shown = [f"{path}: mode {devices[path].mode or 'unknown'}" for path in closed]
        return cause("device-file-permission", "this user may not open the GPU", *shown)
    return fine(", ".join(wanted if len(wanted) < 5 else [*wanted[:2], f"{len(wanted) - 3} more", wanted[-1]]))


def answering(look: Look) -> Outcome:
    """Check that nvidia-smi works and names every GPU on PCI."""
    smi, gpus = look.facts.smi, look.facts.gpus
    if smi is None:
        if look.guest == "jetson":
            return unknown("there is no nvidia-smi on this Jetson; tegrastats shows its GPU")
        if look.owner:
            return notice("smi-missing", "nvidia-smi is not here", "no nvidia-smi")
        return cause("smi-missing", "the driver's programs are not installed", "no nvidia-smi")
    if smi.ok and _count(look) >= len(gpus):
        return fine(
            f"nvidia-smi names {_count(look) or 'every'} of {len(gpus) or 'the'} GPU{'s' if len(gpus) != 1 else ''}"
        )
    silent = [gpu.address for gpu in gpus if gpu.uuid is None] if smi.ok else []
    shown = [f"{address} is on PCI and nvidia-smi does not name it" for address in silent]
    for finding in _logged(look):
        if finding.cause in _EXPLAIN_SILENCE or (finding.cause in _STILL_MATTER):
            return cause(finding.cause, "a GPU does not answer, and the kernel says why", *finding.evidence, *shown)
    why = smi.why or ""
    for finding in findings(scan(why)):
        return cause(finding.cause, "nvidia-smi says what is wrong", *finding.evidence)
    if "gave no answer" in why:
        return cause("smi-hangs", "nvidia-smi gave no answer in time", why)
    if silent:
        return cause("gpu-lost", "a GPU does not answer", *shown)
    return cause("smi-cannot-communicate", "nvidia-smi does not work", why or "no reason given")


def kernel_log(look: Look) -> Outcome:
    """Check the kernel's messages about GPUs since boot."""
    if look.symptoms.kernel_log is None:
        return unknown("it cannot be read here")
    found = [entry for entry in _logged(look) if entry.cause in _STILL_MATTER or entry.cause in _BY_PROGRAMS]
    grave = [entry for entry in found if entry.cause in _STILL_MATTER]
    if grave:
        return cause(grave[0].cause, "the kernel logged an error of a GPU since boot", *grave[0].evidence)
    past = [entry for entry in _logged(look) if entry.cause in _EXPLAIN_SILENCE]
    for entry in found + past:
        return notice(entry.cause, f"{entry.title}, since boot; the GPUs answer now", *entry.evidence)
    return fine("no error of a GPU since boot")


def recovery(look: Look) -> Outcome:
    """Check whether the driver recommends a recovery, and whether memory rows are waiting to be replaced."""
    told = look.symptoms.recovery
    wants = [f"{at}: {told[at].action}" for one in asked(look) for at in one.gpus]
    if wants:
        return cause("gpu-needs-reset", "the driver recommends a recovery of a GPU", *wants)
    if failed := [at for at, gpu in told.items() if gpu.failed]:
        return cause("row-remap-failed", "a broken memory row could not be replaced", *failed)
    if pending := [at for at, gpu in told.items() if gpu.pending]:
        return notice("row-remap-pending", "a memory row is replaced at the next reset", *pending)
    if not any(gpu.action for gpu in told.values()):
        return unknown("this driver does not report it")
    return fine("the driver recommends nothing")


def fabric(look: Look) -> Outcome:
    """Check that a machine with NVSwitches runs a fabric manager of the driver's version."""
    facts = look.facts
    states = [(gpu.address, gpu.fabric) for gpu in facts.gpus if gpu.fabric is not None]
    waiting = [
        f"{at}: {fabric.state} {fabric.status or ''}".strip()
        for at, fabric in states
        if fabric.state not in {None, "Completed", "N/A", "Not Supported"}
    ]
    failed = [
        f"{at}: {fabric.state}, {fabric.status}"
        for at, fabric in states
        if fabric.state == "Completed" and fabric.status not in {None, "Success", "N/A"}
    ]
    if facts.nvswitch is None:
        if waiting or failed:
            return cause(
                "fabric-not-ready", "the GPUs wait for a fabric manager outside this machine", *waiting, *failed
            )
        return fine("no NVSwitch here")
    service = facts.services.get("fabricmanager")
    if service is None:
        return cause(
            "fabric-not-ready",
            "NVSwitches, and no fabric manager is installed",
            "no nvidia-fabricmanager.service",
            *waiting,
        )
    packages = facts.packages.installed
    version = next((text for name, text in packages.items() if "fabricmanager" in name and "dev" not in name), None)
    shown = re.search(r"\d{3}\.\d+(?:\.\d+)?", version or "")
    if shown and look.driver and shown[0] != look.driver:
        return cause(
            "fabric-version-mismatch",
            "fabric manager and driver differ",
            f"fabric manager {shown[0]}, driver {look.driver}",
            fabric=shown[0],
            driver=look.driver,
        )
    if service.active is not None and service.active != "active":
        return cause(
            "fabric-service-failed",
            f"nvidia-fabricmanager is {service.active}",
            f"{service.unit}: {service.active}, {service.enabled}",
            *waiting,
        )
    if waiting or failed:
        return cause("fabric-not-ready", "the fabric is not set up", *waiting, *failed)
    return fine("fabric manager runs, the GPUs are in the fabric" if states else "fabric manager is there")


def mig(look: Look) -> Outcome:
    """Check whether a change of MIG mode is waiting for a reset, or MIG is on without instances."""
    pending = [
        f"{gpu.address}: {gpu.mig}, {gpu.mig_pending} after a reset"
        for gpu in look.facts.gpus
        if gpu.mig and gpu.mig_pending and gpu.mig != gpu.mig_pending
    ]
    if pending:
        return cause("mig-mode-pending", "a change of MIG mode waits for a reset", *pending)
    on = [gpu.address for gpu in look.facts.gpus if gpu.mig == "Enabled"]
    if on and look.symptoms.mig_instances is False:
        return cause("mig-no-instances", "MIG mode is on and there are no instances", *on)
    return fine("on, with instances" if on else "off")


def licence(look: Look) -> Outcome:
    """Check that a vGPU has a licence."""
    if not look.facts.vgpu_guest:
        return fine("no vGPU")
    states = look.symptoms.licence
    if any(state.startswith("Unlicensed") for state in states):
        return cause("vgpu-unlicensed", "the vGPU has no licence", *(f"License Status: {state}" for state in states))
    if states:
        return fine(states[0])
    service = look.facts.services.get("gridd")
    if service is not None and service.active not in {None, "active"}:
        return cause(
            "vgpu-gridd-not-configured", "the licence daemon does not run", f"{service.unit}: {service.active}"
        )
    for finding in _logged(look):
        if finding.cause in {"vgpu-unlicensed", "vgpu-gridd-not-configured"}:
            return cause(finding.cause, "the log says so", *finding.evidence)
    return unknown("nvidia-smi did not report it")
