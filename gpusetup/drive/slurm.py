"""Slurm: waits for jobs, respects reservations and drains of other people."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

from gpusetup.drive.schedulers import (
    HEALTH_MARK,
    MARK,
    Caller,
    Drained,
    check_node,
    given_back,
    wait_until,
)

_BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}
_REBOOTED = ("Node unexpectedly rebooted", "Not responding")
_BACK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node's state in Slurm."""

    states: frozenset[str]
    silent: bool
    """Whether slurmd does not answer."""
    reason: str

    @property
    def drained(self) -> bool:
        """Whether somebody drained it."""
        return "DRAIN" in self.states

    @property
    def ours(self) -> bool:
        """Whether gpusetup drained it."""
        return self.reason.startswith(MARK) and not self.reason.startswith(HEALTH_MARK)


def parse_node(text: str) -> Node:
    """Parse `scontrol --oneliner show node NAME`."""
    state = re.search(r"\bState=(\S+)", text)
    reason = re.search(r"\bReason=(.*?)(?: \[\S+@\S+\])?(?= \w+=|\s*$)", text, re.MULTILINE)
    words = state.group(1).split("+") if state else []
    names = frozenset(re.split(r"[^A-Z_]", word, maxsplit=1)[0] for word in words)
    return Node(states=names, silent=any("*" in word for word in words), reason=reason.group(1) if reason else "")


def parse_reservations(text: str) -> dict[str, str]:
    """Return the active reservations that are not for maintenance, each with its nodes in Slurm's notation."""
    found = {}
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        if fields.get("State") == "ACTIVE" and "MAINT" not in fields.get("Flags", "").split(","):
            found[fields.get("ReservationName", "?")] = fields.get("Nodes", "")
    return found


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Slurm, on this machine or wherever the caller's prefix leads."""

    call: Caller = field(default_factory=Caller)
    name: str = "slurm"

    def drain(self, node: str, seconds: float) -> Drained:
        """Drain a node and wait for its jobs; after the deadline it is resumed."""
        if held := self.reserved(node):
            return Drained(ok=False, why=f"reserved: {held}")
        seen = self.node(node)
        taken = not seen.drained
        with given_back(taken, partial(self._undo, node), self.by_hand(node)):
            if taken:
                self.call.output_of("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={MARK}")
            left = wait_until(lambda: self.jobs_on(node), seconds, self.call.stop)
        if left:
            if taken:
                self._resume(node)
            return Drained(ok=False, why=left)
        whose = "" if taken or seen.ours else f"drained by someone else: {seen.reason or 'no reason given'}"
        return Drained(ok=True, ours=taken or seen.ours, why=whose)

    def undrain(self, node: str) -> str:
        """Resume a node that we drained, once slurmd answers, unless somebody else has drained it meanwhile."""
        silent = wait_until(
            lambda: "slurmd does not answer" if self.node(node).silent else "", _BACK_SECONDS, self.call.stop
        )
        seen = self.node(node)
        if silent:
            return silent
        if "INVALID_REG" in seen.states:
            return f"slurmd reports different hardware than slurm.conf: {seen.reason}; correct gres.conf"
        if not seen.drained and "DOWN" not in seen.states:
            return ""
        if not seen.ours and not seen.reason.startswith(_REBOOTED):
            return f"someone else drained it meanwhile: {seen.reason}"
        self._resume(node)
        return wait_until(lambda: self._out_of_service(node), _BACK_SECONDS, self.call.stop)

    def drained_by_us(self, node: str) -> bool:
        """Return whether the node is drained with our mark as its reason."""
        seen = self.node(node)
        return seen.drained and seen.ours

    def by_hand(self, node: str) -> str:
        """Return the command that returns the node to service."""
        return " ".join([*self.call.prefix, "scontrol", "update", f"NodeName={node}", "State=RESUME"])

    def node(self, node: str) -> Node:
        """Return a node's state."""
        return parse_node(self.call.output_of("scontrol", "--oneliner", "show", "node", check_node(node)))

    def _undo(self, node: str) -> None:
        """Resume a node if our drain, which may have failed to answer, took effect."""
        if self.drained_by_us(node):
            self._resume(node)

    def _resume(self, node: str) -> None:
        self.call.output_of("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def jobs_on(self, node: str) -> str:
        """Return which jobs are on a node, as text; empty if there are none."""
        if not self.node(node).states & _BUSY:
            return ""
        jobs = self.call.output_of("squeue", "--noheader", "--nodelist", node, "--format=%i").split()
        return f"jobs run: {', '.join(jobs[:8])}" if jobs else "a job is ending"

    def _out_of_service(self, node: str) -> str:
        seen = self.node(node)
        gone = seen.states & {"DOWN", "DRAIN"}
        return f"it is still {'+'.join(sorted(gone))}: {seen.reason}" if gone else ""

    def reserved(self, node: str) -> str:
        """Return the name of the reservation that the node is in now, or an empty string."""
        for name, nodes in parse_reservations(
            self.call.output_of("scontrol", "--oneliner", "show", "reservation")
        ).items():
            if (
                re.fullmatch(r"[\w\[\],.-]+", nodes)
                and node in self.call.output_of("scontrol", "show", "hostnames", nodes).split()
            ):
                return name
        return ""
