"""The options of a rollout from the command line, and the interface to report its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from gpusetup.drive.playbook import Observer
    from gpusetup.model.applied import Applied
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.lock import Lock
    from gpusetup.model.plan import HostPlan, Plan
    from gpusetup.model.request import Requirement
    from gpusetup.model.settings import RebootPolicy

Recorded = Callable[[str, "HostFacts"], "Applied"]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """Settings of the command line for all hosts; gpusetup.toml and the inventory override them."""

    requirements: tuple[Requirement, ...] = ()
    source: str | None = None
    reboot: RebootPolicy | None = None
    replace: bool = False
    no_way_back: bool = False
    older_source: bool = False
    despite_maintenance: bool = False
    upgrade: bool = False
    allow_vulnerable: bool = False


@dataclass(frozen=True, kw_only=True)
class Planning:
    """How hosts are planned: freely, to a lock, from an existing plan, or from a record on the host."""

    wishes: Wishes = Wishes()
    lock: Lock | None = None
    keep_driver: bool = False
    """With a lock: keep a working driver that is compatible with the rest."""
    image: bool = False
    """With a lock: use the GPUs of the lock instead of the host's."""
    made: Plan | None = None
    recorded: Recorded | None = None
    only: tuple[str, ...] | None = None
    """None: all hosts of the inventory."""
    to_apply: bool = True
    """Whether apply follows: then the package lists that the preview fetched stay on the hosts."""


@dataclass(frozen=True, kw_only=True)
class Freeing:
    """How hosts are drained before they change."""

    drain: str = ""
    undrain: str = ""
    via: str = ""
    drain_minutes: float = 0.0
    busy_minutes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Applying:
    """How plans are carried out."""

    check: bool = False
    verify: Literal["auto", "always", "never"] = "auto"
    batch: str = ""
    max_fail: int = 0
    max_fail_domain: int | None = None
    """After more failures than this in a domain, no other host of it is started."""
    keep: Literal["", "anew", "on"] = "anew"
    """Record the remaining hosts for --resume: not at all, of the changing hosts, or (`on`) of all hosts."""
    freeing: Freeing = Freeing()


class Reporter(Protocol):
    """Reports the progress of a rollout."""

    def watch(self, phase: str) -> AbstractContextManager[Observer]:
        """Return an observer for the playbook of a phase."""

    def begins(self, changes: Mapping[str, HostPlan]) -> None:
        """Report the hosts that are about to change, and how."""

    def say(self, text: str) -> None:
        """Report a line of text."""
