"""Engines return the process that runs one shard's playbook.

Plans, batches, budgets, deadlines, verdicts and records belong to the callers. The process writes events to the run's
`events.jsonl` (`gpusetup.drive.callback` does), stops on SIGINT, and leaves nothing behind when it is killed together
with its children.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusetup.drive.fork_child import Child
    from gpusetup.drive.fork_server import ForkServer
    from gpusetup.drive.rundir import RunDirectory
    from gpusetup.drive.schedulers import Caller, Holder


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


_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:@+-]*")
_SBATCH = ("partition", "account", "qos", "time", "reservation")


@dataclass(frozen=True)
class Slurm(Ansible):
    """Runs playbooks like `Ansible`; its settings are those of the jobs."""

    name: ClassVar[str] = "slurm"
    partition: str = ""
    account: str = ""
    qos: str = ""
    time: str = ""
    reservation: str = ""
    nextstate: str = "DOWN"

    def __post_init__(self) -> None:
        for option in _SBATCH:
            value = getattr(self, option)
            if value and not _WORD.fullmatch(value):
                raise _wrong(f"{option}={value}", "a name, or for time what sbatch takes: 90, 2:00:00, 1-12")
        if self.nextstate.upper() not in ("DOWN", "RESUME"):
            raise _wrong(
                f"nextstate={self.nextstate}", "DOWN (a node is verified before it works again) or RESUME (it is not)"
            )

    def holder(self, call: Caller, run: str) -> Holder:
        """Return the scheduler that holds the nodes of a run."""
        from gpusetup.drive.slurm import SlurmJobs

        if not call.prefix and shutil.which("sbatch") is None:
            raise BadInputError(
                "GS-820", "Slurm's commands are not on this machine", path="--engine", context="looked for sbatch"
            )
        words = tuple(f"--{option}={value}" for option in _SBATCH if (value := getattr(self, option)))
        state: Literal["DOWN", "RESUME"] = "RESUME" if self.nextstate.upper() == "RESUME" else "DOWN"
        return SlurmJobs(
            call=call, run=run, words=words, partition=self.partition, reservation=self.reservation, next_state=state
        )


def _wrong(said: str, takes: str) -> BadInputError:
    return BadInputError(
        "GS-821", f"the engine slurm cannot use {said}", path="--engine-option", hint=f"it takes {takes}"
    )


ENGINES: Mapping[str, Any] = {"ansible": Ansible, "slurm": Slurm}
ELSEWHERE = {"awx": ("AWX runs gpusetup, not gpusetup AWX", "gpusetup export handover awx --out awx-handover")}
"""Names that are not engines: why, and the command to use instead."""


def engine_of(name: str, options: Sequence[str] = ()) -> Engine:
    """Return the engine of this name; `options` are its settings, each NAME=VALUE."""
    if name in ELSEWHERE:
        why, command = ELSEWHERE[name]
        raise BadInputError("GS-964", f"{name} is no engine: {why}", path="--engine", hint=command)
    kind = ENGINES[name]
    known = {field.name.replace("_", "-"): field.name for field in fields(kind)}
    told: dict[str, str] = {}
    for option in options:
        word, mark, value = option.partition("=")
        if word not in known or not mark:
            takes = ", ".join(f"{setting}=VALUE" for setting in known)
            raise BadInputError(
                "GS-416", f"the engine {name} does not take {option!r}", path="--engine-option",
                hint=f"it takes {takes}" if takes else "leave it out: it has no settings",
            )  # fmt: skip
        told[known[word]] = value
    engine: Engine = kind(**told)
    return engine
