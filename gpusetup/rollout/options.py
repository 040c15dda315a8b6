"""What a person said about a rollout, read from the command line once; and whom the rollout tells how it gets on."""

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
    """What is wanted of all hosts, below what gpusetup.toml and the inventory say; see `gpusetup.plan.settings`."""

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
    """By what hosts are planned: freely, to a lock, by a plan that was made before, or to what a record says."""

    wishes: Wishes = Wishes()
    lock: Lock | None = None
    keep_driver: bool = False
    """With a lock: a working driver that goes with the rest of it stays."""
    image: bool = False
    """With a lock: the GPUs are the lock's."""
    made: Plan | None = None
    recorded: Recorded | None = None
    only: tuple[str, ...] | None = None
    """None: every host of the inventory."""
    to_apply: bool = True
    """What the last look fetched onto the hosts is used afterwards."""


@dataclass(frozen=True, kw_only=True)
class Freeing:
    """How hosts are taken out of work before they change."""

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
    """After more failures than this among hosts of one domain, none of its hosts is begun any more."""
    keep: Literal["", "anew", "on"] = "anew"
    """Whether who is left is written down for --resume: of the hosts that change, or, going `on`, of all."""
    freeing: Freeing = Freeing()


class Reporter(Protocol):
    """Somebody who hears what a rollout does while it does it."""

    def watch(self, phase: str) -> AbstractContextManager[Observer]:
        """Follow the playbook of a phase."""

    def begins(self, changes: Mapping[str, HostPlan]) -> None:
        """Hear which hosts are about to change, and how."""

    def say(self, text: str) -> None:
        """Hear a sentence."""
