"""The input of a diagnosis (a machine's facts and symptoms) and the outcome of each check."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import msgspec

from gpusetup.model.diagnosis import Finding, Fix, Symptoms
from gpusetup.model.facts import HostFacts
from gpusetup.plan.preflight import Guest, borrowed_from, guest_refusal

OWNERS: dict[Guest, str] = {"wsl": "Windows", "container": "the container's host", "jetson": "Jetson Linux"}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check; a cause has its evidence and the values to decode."""

    answer: Literal["fine", "cause", "unknown", "notice"]
    text: str
    cause: str = ""
    evidence: tuple[str, ...] = ()
    groups: dict[str, str] = field(default_factory=dict)


def fine(text: str) -> Outcome:
    """Return the outcome of a check that found nothing wrong."""
    return Outcome("fine", text)


def unknown(text: str) -> Outcome:
    """Return the outcome of a check that could not be made."""
    return Outcome("unknown", text)


def cause(name: str, text: str, *evidence: str, **groups: str) -> Outcome:
    """Return the outcome of a check that found the cause: the diagnosis ends here."""
    return Outcome("cause", text, name, tuple(evidence), groups)


def notice(name: str, text: str, *evidence: str, **groups: str) -> Outcome:
    """Return the outcome of a check that found something worth knowing that does not stop the GPU from working."""
    return Outcome("notice", text, name, tuple(evidence), groups)


@dataclass(frozen=True)
class Look:
    """One machine: its facts and symptoms."""

    facts: HostFacts
    symptoms: Symptoms

    @cached_property
    def guest(self) -> Guest | None:
        """What provides the driver (WSL, a container's host, a Jetson) if this machine does not install its own."""
        return borrowed_from(self.facts)

    @property
    def owner(self) -> str:
        """The owner of the driver in words; empty: this machine."""
        return OWNERS[self.guest] if self.guest else ""

    @cached_property
    def loaded(self) -> str | None:
        """Version of the loaded kernel module."""
        driver = self.facts.driver
        return driver.loaded.version if driver and driver.loaded else None

    @cached_property
    def driver(self) -> str | None:
        """The driver that programs use: the loaded module's version, else the installed one."""
        shown = next((gpu.driver_version for gpu in self.facts.gpus if gpu.driver_version), None)
        return self.loaded or shown or (self.facts.driver.version if self.facts.driver else None)

    def root_would_add(self) -> list[str]:
        """Return what this user could not read but root could."""
        if not self.symptoms.live or self.symptoms.root:
            return []
        refused = [entry for entry in self.facts.unreadable if "ermission" in entry.reason]
        lines = ["the kernel's messages (dmesg is kept from users here)"] if self.symptoms.kernel_log_refused else []
        return lines + [f"{entry.field}: {entry.reason}" for entry in refused]


_APPLY = "gpusetup apply"


def without_apply(finding: Finding, guest: Guest) -> Finding:
    """Drop fixes that would install a driver or packages on a guest, and add what to do instead."""
    fixes = tuple(left for fix in finding.fixes if (left := _without(fix)) is not None)
    if fixes == finding.fixes:
        return finding
    refusal = guest_refusal(guest)
    why = refusal.message.partition(": ")[2]
    instead = Fix(text=f"{why[:1].upper()}{why[1:]}: {refusal.hint}.")
    return msgspec.structs.replace(finding, fixes=(instead, *fixes))


def _without(fix: Fix) -> Fix | None:
    commands = tuple(line for line in fix.commands if _APPLY not in line)
    if _APPLY in fix.text or (fix.commands and commands in ((), ("sudo ldconfig",))):
        return None
    return msgspec.structs.replace(fix, commands=commands)
