"""Whom a rollout tells how it gets on. What it comes to is its answer, not told here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from gpusetup.drive.playbook import Observer
    from gpusetup.model.plan import HostPlan

__all__ = ["Reporter"]


class Reporter(Protocol):
    """Somebody who hears what a rollout does while it does it."""

    def watch(self, phase: str) -> AbstractContextManager[Observer]:
        """Follow the playbook of a phase."""

    def begins(self, changes: Mapping[str, HostPlan]) -> None:
        """Hear which hosts are about to change, and how."""

    def say(self, text: str) -> None:
        """Hear a sentence."""
