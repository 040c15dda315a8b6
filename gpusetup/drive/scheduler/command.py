"""Any command that takes a node out of work, and another one that gives it back."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusetup.drive.scheduler.base import Caller, Drained, SchedulerError, words

BUSY = 75
"""sysexits' EX_TEMPFAIL: not now."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Two argument lists with `{node}` in them."""

    take: tuple[str, ...]
    give: tuple[str, ...] = ()
    call: Caller = field(default_factory=Caller)
    name: str = "command"

    def drain(self, node: str, seconds: float) -> Drained:
        """Exit 0: out of work; 75, or no end in time: still busy; anything else is an error."""
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
        """Run the other command."""
        if not self.give:
            return ""
        done = self.call(*words(self.give, node))
        return "" if done.ok else " ".join((done.err or done.out).split())[:400] or f"exit {done.code}"

    def drained_by_us(self, node: str) -> bool:
        """Nobody can tell."""
        del node
        return False

    def by_hand(self, node: str) -> str:
        """Return the command that gives the node back."""
        return " ".join(words((*self.call.prefix, *self.give), node)) if self.give else ""
