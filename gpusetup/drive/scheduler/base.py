"""What every scheduler does for us: take a node out of work, give it back. Running jobs are waited for, never ended."""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gpusetup.drive import runner
from gpusetup.errors import BadInputError, Exit, GpuSetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpusetup.drive.runner import Finished

MARK = "gpusetup"
"""How our own work is told from somebody else's."""

HEALTH_MARK = f"{MARK}-health"
"""How a node is marked that is bad: no change of it gives it back, its health does."""

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_CALL_SECONDS = 60.0
_POLL_SECONDS = 5.0


class SchedulerError(GpuSetupError):
    """The scheduler did not do what it was asked to."""

    exit = Exit.REFUSED


@dataclass(frozen=True, kw_only=True)
class Drained:
    """What became of the attempt to take a node out of work."""

    ok: bool
    """Nothing runs on it and nothing new comes: it may change."""
    ours: bool = False
    """We took it, so we give it back."""
    why: str = ""


class Scheduler(Protocol):
    """One kind of scheduler."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def call(self) -> Caller:
        """What runs its commands."""

    def drain(self, node: str, seconds: float) -> Drained:
        """Take a node out of work and wait so long for what runs on it; what does not end in time keeps its node."""

    def undrain(self, node: str) -> str:
        """Give the node back; return why it could not be, or nothing."""

    def drained_by_us(self, node: str) -> bool:
        """Tell whether an earlier run took the node and never gave it back."""

    def by_hand(self, node: str) -> str:
        """Return the command that gives the node back."""


@dataclass(frozen=True, kw_only=True)
class Reboot:
    """How a node reboots so that its scheduler knows of it; said on the node, as root."""

    command: str
    release: tuple[str, ...] = ()
    """What gives up the hold on it first: no node reboots under a job."""


class Holder(Scheduler, Protocol):
    """A scheduler that also holds each node with a job of ours while it changes."""

    def cannot_reboot(self) -> GpuSetupError | None:
        """Return why no node could reboot, or nothing; nodes that are to reboot are not begun then."""

    def reboot(self, node: str) -> Reboot:
        """Return how a node reboots."""

    def lost(self) -> dict[str, str]:
        """Return the nodes whose job has ended and how, in the scheduler's word."""

    def let_go(self) -> None:
        """End every job that is left; the nodes stay as they are."""


@dataclass(frozen=True)
class Caller:
    """Runs the scheduler's own commands: argument lists, no shell, a deadline each."""

    prefix: tuple[str, ...] = ()
    """What comes before each command, when the scheduler's commands are on another machine: ssh head."""
    stop: threading.Event = field(default_factory=threading.Event)

    def __call__(self, *argv: str, seconds: float = _CALL_SECONDS, stdin: bytes | None = None) -> Finished:
        """Run a command to its end, whatever it says."""
        return runner.run([*self.prefix, *argv], env=os.environ, deadline=seconds, stdin=stdin)

    def output_of(self, *argv: str, seconds: float = _CALL_SECONDS, stdin: bytes | None = None) -> str:
        """Run a command and return what it printed; anything but success is an error."""
        done = self(*argv, seconds=seconds, stdin=stdin)
        if not done.ok:
            why = " ".join((done.err or done.out).split())[:400] or f"exit {done.code}"
            raise SchedulerError(
                "GS-811",
                f"{argv[0]}: {'it did not answer' if done.timed_out else why}",
                context=" ".join(done.argv),
                note="the node is unchanged",
            )
        return done.out


def check_node(node: str) -> str:
    """Return the name when it can be nothing but a name, for us and for a shell on the scheduler's machine."""
    if not _NODE.fullmatch(node):
        raise BadInputError("GS-812", f"{node!r} is not a node name")
    return node


def wait_until(free: Callable[[], str], seconds: float, stop: threading.Event, poll: float = 0.0) -> str:
    """Ask until nothing is in the way, at most so long; return what is still in the way."""
    until = time.monotonic() + seconds
    while reason := free():
        if time.monotonic() >= until or stop.wait(min(poll or _POLL_SECONDS, max(0.05, until - time.monotonic()))):
            return reason
    return ""


def give_back(back: Callable[[], object], by_hand: str, error: GpuSetupError) -> None:
    """Give back a node whose scheduler failed after the drain; if that fails too, raise an error that says so."""
    try:
        back()
    except GpuSetupError:
        raise SchedulerError(
            error.reference, error.message, context=error.context, note="the node is still drained",
            hint=f"to return it to service: {by_hand}",
        ) from error  # fmt: skip


def words(argv: Sequence[str], node: str) -> list[str]:
    """Put the node's name where a command has its place for it."""
    return [word.replace("{node}", check_node(node)) for word in argv]
