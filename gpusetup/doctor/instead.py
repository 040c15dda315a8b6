"""What helps on machines whose driver comes from elsewhere: never `apply`, which would install one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpusetup.model.diagnosis import Fix
from gpusetup.plan.preflight import guest_refusal

if TYPE_CHECKING:
    from gpusetup.model.diagnosis import Finding
    from gpusetup.plan.preflight import Guest

__all__ = ["without_apply"]

_APPLY = "gpusetup apply"


def without_apply(finding: Finding, guest: Guest) -> Finding:
    """Leave out of the fixes what would install a driver or packages beside it, and say what to do instead."""
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
