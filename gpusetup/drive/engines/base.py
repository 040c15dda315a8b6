"""The interface of engines: an engine returns the process that runs one shard's playbook.

Plans, batches, budgets, deadlines, verdicts and records belong to the callers. The process writes events to the run's
`events.jsonl` (`gpusetup.drive.callback` does), stops on SIGINT, and leaves nothing behind when it is killed together
with its children.
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
    """The name for ansible-playbook: gpusetup.stack.apply."""
    options: tuple[str, ...]
    """All other arguments of ansible-playbook, one element each; passwords are named pipes."""
    environment: Mapping[str, str]
    """The whole environment: the user's own, Ansible's settings, paths of events and secrets, the shard's hosts."""
    handed: Mapping[str, str]
    """Variables for a direct child of ours: where to find the inventory that another process has read."""
    descriptors: tuple[int, ...]
    """Descriptors that such a child inherits for it."""

    server: ForkServer | None = None
    """A process that has imported Ansible already."""

    @property
    def label(self) -> str:
        """Prefix of its files: apply, apply-1."""
        return f"{self.name}-{self.shard}" if self.shard else self.name


@dataclass(frozen=True, kw_only=True)
class Command:
    """The process to start."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    already: Child | None = None
    """The process, if the engine has started it already."""


class Engine(Protocol):
    """A way to run playbooks: a dataclass whose fields are its settings, all of them strings.

    Its constructor raises for settings that cannot work, before any host is contacted.
    """

    @property
    def name(self) -> str:
        """Its name for --engine."""

    def command(self, play: Play) -> Command:
        """Return the process to start."""


@runtime_checkable
class Holding(Protocol):
    """An engine that also reserves the hosts in their scheduler's queue while they change."""

    def holder(self, call: Caller, run: str) -> Holder:
        """Return the scheduler that holds the hosts; raise if it cannot work."""


@dataclass(frozen=True)
class Ansible:
    """ansible-playbook by our own interpreter, on this machine."""

    name: ClassVar[str] = "ansible"

    def command(self, play: Play) -> Command:
        """Return ansible-playbook as a command; the fork server starts it if it can."""
        argv = (sys.executable, "-m", "ansible", "playbook", *play.options, play.playbook)
        environment = {**play.environment, **play.handed}
        already = play.server.start(argv, environment, play.descriptors) if play.server else None
        return Command(argv=argv, environment=environment, descriptors=play.descriptors, already=already)
