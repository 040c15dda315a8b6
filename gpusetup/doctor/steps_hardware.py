"""Checks: do the GPUs answer, may this user open them, and are fabric, MIG and licence in order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.doctor.findings import asked, current, findings
from gpusetup.doctor.look import Look, Outcome, cause, fine, notice, unknown
from gpusetup.doctor.scan import scan

if TYPE_CHECKING:
    from gpusetup.model.diagnosis import Finding

_BY_PROGRAMS = frozenset({"xid-13", "xid-31", "xid-43", "xid-45", "xid-68", "xid-69", "xid-94"})
_STILL_MATTER = frozenset(
    {"ecc-uncorrectable", "gsp-timeout", "nvlink-uncorrectable", "sxid-fatal"}
    | {f"xid-{number}" for number in (48, 62, 64, 74, 95, 110, 140, 143)}
    | {"xid-nvlink5"}
)
_EXPLAIN_SILENCE = frozenset(
    {"gpu-fallen-off-bus", "gpu-lost", "rm-init-failed", "pci-bar-not-assigned", "probe-failed"}
)


_JETSON_DEVICES = ("/dev/nvgpu", "/dev/nvhost", "/dev/nvidia")


def _logged(look: Look) -> list[Finding]:
    log = current(look.kernel_log or "", look.symptoms.resets)
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
    if look.kernel_log is None:
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
