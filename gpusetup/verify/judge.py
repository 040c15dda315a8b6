"""Judge one machine's observations: every check of its level, each by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Result, levels_up_to
from gpusetup.verify.registry import Check, checks

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

__all__ = ["judge"]


def judge(machine: Machine) -> tuple[Result, ...]:
    """Return one result per check; observations that a check cannot read fail that check alone."""
    levels = levels_up_to(machine.level)
    return tuple(_one(check, machine) for check in checks() if check.level in levels and check.applies(machine))


def _one(check: Check, machine: Machine) -> Result:
    try:
        return check.run(machine)
    except Exception as error:  # noqa: BLE001 - documents come from outside; the next check must run
        text = f"could not be evaluated: {type(error).__name__}: {error}"
        return Result(id=check.id, level=check.level, verdict="fail", text=text)
