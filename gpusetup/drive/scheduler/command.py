"""Any command that drains a node, and another one that returns it to service."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusetup.drive.scheduler.base import Caller, Drained, SchedulerError, words

BUSY = 75
"""EX_TEMPFAIL of sysexits.h: the node is busy."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Two argument lists with `{node}` in them."""

    take: tuple[str, ...]
    give: tuple[str, ...] = ()
    call: Caller = field(default_factory=Caller)
    name: str = "command"

    def drain(self, node: str, seconds: float) -> Drained:
        """Run the command. Exit 0: drained; 75 or a timeout: busy; anything else is an error."""
        done = self.call(*words(self.take, node), seconds=seconds)
        if done.ok:
            return Drained(ok=True, ours=True)
        said = " ".join((done.err or done.out).split())[:400]
        if done.timed_out or done.code == BUSY:
            late = f"the drain command was still running after {seconds:.0f} s"
            return Drained(ok=False, why=late if done.timed_out else said or "it is busy")
        raise SchedulerError(
            "GS-811", f"the drain command failed (exit {done.code}): {said}", context=" ".join(done.argv),
            note="the host is unchanged",
        )  # fmt: skip

    def undrain(self, node: str) -> str:
        """Run the command that returns the node to service."""
        if not self.give:
            return ""
        done = self.call(*words(self.give, node))
        return "" if done.ok else " ".join((done.err or done.out).split())[:400] or f"exit {done.code}"

    def drained_by_us(self, node: str) -> bool:
        """Return False: a command leaves no mark."""
        del node
        return False

    def by_hand(self, node: str) -> str:
        """Return the command that returns the node to service."""
        return " ".join(words((*self.call.prefix, *self.give), node)) if self.give else ""
