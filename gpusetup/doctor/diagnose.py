"""Diagnose a machine: run checks from the hardware up to the programs until one finds a cause."""

import time
from collections.abc import Callable

from gpusetup.doctor import steps_machine, steps_software
from gpusetup.doctor.catalogue import catalogue
from gpusetup.doctor.findings import finding_of, of_machine
from gpusetup.doctor.look import Look, Outcome, without_apply
from gpusetup.model.diagnosis import Diagnosis, Finding, Ruled

STEPS: tuple[tuple[str, Callable[[Look], Outcome]], ...] = (
    ("GPU", steps_machine.present),
    ("driver", steps_machine.installed),
    ("driver fits the GPU", steps_machine.flavour),
    ("kernel module", steps_machine.module),
    ("module loaded", steps_machine.loaded),
    ("module and libraries", steps_machine.same_version),
    ("GPUs answer", steps_machine.answering),
    ("device files", steps_machine.device_files),
    ("kernel log", steps_machine.kernel_log),
    ("recovery", steps_machine.recovery),
    ("fabric", steps_machine.fabric),
    ("MIG", steps_machine.mig),
    ("vGPU licence", steps_machine.licence),
    ("libcuda", steps_software.libcuda),
    ("CUDA libraries", steps_software.libraries),
    ("visible GPUs", steps_software.visible),
    ("Python frameworks", steps_software.frameworks),
    ("containers", steps_software.runtimes),
    ("exporters", steps_software.exporters),
)


def diagnose(look: Look) -> Diagnosis:
    """Run every check until one finds a cause; return it with everything ruled out before."""
    started = time.monotonic()
    ruled: list[Ruled] = []
    notices: list[Finding] = []
    found: Finding | None = None
    for name, step in STEPS:
        outcome = step(look)
        ruled.append(Ruled(step=name, text=outcome.text, answer=outcome.answer))
        if outcome.cause:
            manager = look.facts.packages.manager or ""
            told = finding_of(catalogue()[outcome.cause], outcome.evidence, outcome.groups, manager)
            if outcome.answer == "cause":
                found = told
                break
            notices.append(told)
    if look.guest is not None:
        found = without_apply(found, look.guest) if found is not None else None
        notices = [without_apply(notice, look.guest) for notice in notices]
    return Diagnosis(
        healthy=found is None,
        cause=found,
        ruled=tuple(ruled),
        notices=tuple(notices),
        recovery=of_machine(look, found, notices),
        root_would_add=tuple(dict.fromkeys(look.root_would_add())),
        simulated=look.facts.simulated,
        seconds=round(time.monotonic() - started, 3),
    )
