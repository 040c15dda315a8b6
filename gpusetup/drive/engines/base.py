"""The seam: an engine turns one shard's playbook into the one process that runs it; all else stays as it is.

Plan, batches, budgets, deadlines, verdicts and records belong to those who call. What an engine starts writes our
events into the run's `events.jsonl` (`gpusetup.drive.callback` does), stops on Ctrl-C (SIGINT), and leaves nothing
behind when it is killed together with its children.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusetup.drive.fork_child import Child
    from gpusetup.drive.fork_server import ForkServer
    from gpusetup.drive.rundir import RunDirectory
    from gpusetup.drive.scheduler.base import Caller, Holder


@dataclass(frozen=True, kw_only=True)
class Play:
    """One playbook on one shard's hosts."""

    run: RunDirectory
    name: str
    """The playbook's name within our collection: apply."""
    shard: int
    playbook: str
    """What ansible-playbook takes: gpusetup.stack.apply."""
    options: tuple[str, ...]
    """Every other argument of ansible-playbook, as one element each; passwords are named pipes."""
    environment: Mapping[str, str]
    """Complete: the person's own, Ansible's settings, where events and secrets go, which hosts are the shard's."""
    handed: Mapping[str, str]
    """To be added for a direct child of ours: where the inventory is that another process has read already."""
    descriptors: tuple[int, ...]
    """What such a child needs for that."""

    server: ForkServer | None = None
    """A process that has imported Ansible already."""

    @property
    def label(self) -> str:
        """What its files are called: apply, apply-1."""
        return f"{self.name}-{self.shard}" if self.shard else self.name


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is started."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    already: Child | None = None
    """The process, where the engine has had it started."""


class Engine(Protocol):
    """One way to run playbooks: a dataclass whose fields are its settings, texts all of them.

    Making it refuses what cannot work, before any host is looked at.
    """

    @property
    def name(self) -> str:
        """What --engine calls it."""

    def command(self, play: Play) -> Command:
        """Return what to start."""


@runtime_checkable
class Holding(Protocol):
    """An engine that also holds the hosts while they change, in the queue of who owns them."""

    def holder(self, call: Caller, run: str) -> Holder:
        """Return what holds them; making it refuses what cannot work, as above."""


@dataclass(frozen=True)
class Ansible:
    """ansible-playbook by our own interpreter, on this machine."""

    name: ClassVar[str] = "ansible"

    def command(self, play: Play) -> Command:
        """Return the command as it is."""
        argv = (sys.executable, "-m", "ansible", "playbook", *play.options, play.playbook)
        environment = {**play.environment, **play.handed}
        already = play.server.start(argv, environment, play.descriptors) if play.server else None
        return Command(argv=argv, environment=environment, descriptors=play.descriptors, already=already)
