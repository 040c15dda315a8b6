"""A rollout told on standard error while it goes on: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli.output import aside, say
from gpusetup.drive.causes import counted
from gpusetup.drive.progress import watch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from gpusetup.drive.playbook import Observer
    from gpusetup.model.plan import HostPlan

__all__ = ["Telling"]


class Telling:
    """The reporter of the command line."""

    def watch(self, phase: str) -> AbstractContextManager[Observer]:
        """Follow the playbook of a phase."""
        return watch(aside(), phase=phase)

    def begins(self, changes: Mapping[str, HostPlan]) -> None:
        """Say what is about to happen, before it does."""
        from gpusetup.cli.plan_text import size_text

        reboots = sum(1 for plan in changes.values() if plan.reboot)
        sizes = [plan.download_bytes or 0 for plan in changes.values()]
        removals = sorted({name for plan in changes.values() for name in plan.removals})
        gone = f"; removes {', '.join(removals[:6])}" + (" …" if len(removals) > 6 else "") if removals else ""
        unknown = any(plan.download_bytes is None for plan in changes.values())
        size = "an unknown size" if unknown else size_text(max(sizes))
        self.say(
            f"{counted(len(changes), 'host')} to change, {reboots} may reboot, "
            f"{size} to download per host at most{gone}"
        )
        for name, plan in changes.items():
            for action in plan.actions:
                if action.id == "remove-runfile":
                    self.say(f"{name}: removes {action.what}: {action.why}")

    def say(self, text: str) -> None:
        """Say a sentence."""
        say(text)
