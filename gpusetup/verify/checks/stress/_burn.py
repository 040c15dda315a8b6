"""What the stress checks share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

__all__ = ["absent", "seconds"]


def seconds(machine: Machine) -> float:
    """The time that was asked for."""
    return 60 * float((machine.sections.get("stress") or {}).get("minutes", 0))


def absent(machine: Machine) -> Finding | None:
    """Return the finding when nothing was loaded."""
    section = machine.sections.get("stress")
    if not isinstance(section, dict):
        return Finding("skip", "not run: the test ended before it")
    if section.get("skipped"):
        return Finding("warn", f"not loaded: {section['skipped']}")
    return None
