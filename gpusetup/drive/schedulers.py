"""Schedulers drain nodes and return them to service: the interface, Slurm, Kubernetes, and any pair of commands.

Running jobs are waited for, never ended; reservations and drains of other people are respected.
"""

import json
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from gpusetup.content import host_code
from gpusetup.drive import runner
from gpusetup.drive.runner import Finished
from gpusetup.errors import BadInputError, Exit, GpuSetupError

MARK = "gpusetup"
"""Marks our own drains and jobs."""

HEALTH_MARK = f"{MARK}-health"
"""Marks nodes with bad health: a change does not return them to service, good health does."""

Read = TypeVar("Read")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_AT_ONCE = 16
_CALL_SECONDS = 60.0
_POLL_SECONDS = 5.0


class SchedulerError(GpuSetupError):
    """A command of the scheduler failed."""

    exit = Exit.REFUSED


@dataclass(frozen=True, kw_only=True)
class Drained:
    """The result of draining a node."""

    ok: bool
    """Nothing runs on it and no new job starts: it may change."""
    ours: bool = False
    """Whether gpusetup drained it, in this run or an earlier one, and so returns it to service."""
    why: str = ""


class Scheduler(Protocol):
    """One kind of scheduler."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def call(self) -> "Caller":
        """Runs its commands."""

    def drain(self, node: str, seconds: float) -> Drained:
        """Drain a node and wait up to `seconds` for its jobs; if they do not end in time, undo the drain."""

    def undrain(self, node: str) -> str:
        """Return a node to service; return why that failed, or an empty string."""

    def drained_by_us(self, node: str) -> bool:
        """Return whether an earlier run drained the node and did not return it to service."""

    def by_hand(self, node: str) -> str:
        """Return the command that returns the node to service."""


@dataclass(frozen=True)
class Caller:
    """Runs the scheduler's commands: argument lists, no shell, a deadline each."""

    prefix: tuple[str, ...] = ()
    """Words before each command, if the scheduler is on another machine: ssh head."""
    stop: threading.Event = field(default_factory=threading.Event)
    turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_AT_ONCE))

    def __call__(self, *argv: str, seconds: float = _CALL_SECONDS) -> Finished:
        """Run a command to its end; a failure is not an error. What ssh passes on, a shell reads."""
        quoted = map(shlex.quote, argv) if any(word.rpartition("/")[2] == "ssh" for word in self.prefix) else argv
        with self.turns:
            return runner.run([*self.prefix, *quoted], env=os.environ, deadline=seconds)

    def output_of(self, *argv: str, seconds: float = _CALL_SECONDS) -> str:
        """Run a command and return its output; raise if it fails."""
        done = self(*argv, seconds=seconds)
        if not done.ok:
            why = " ".join((done.err or done.out).split())[:400] or f"exit {done.code}"
            raise SchedulerError(
                "GS-811", f"{argv[0]}: {'it did not answer' if done.timed_out else why}", context=" ".join(done.argv),
                note="the node is unchanged",
            )  # fmt: skip
        return done.out

    def read(self, look: Callable[[Any], Read], *argv: str, seconds: float = _CALL_SECONDS) -> Read:
        """Run a command and return what `look` finds in its JSON; raise if it fails or has another form."""
        text = self.output_of(*argv, seconds=seconds)
        try:
            return look(json.loads(text))
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            why = f"{argv[0]} gave an answer that cannot be read: {' '.join(text.split())[:200]}"
            raise SchedulerError("GS-811", why, context=" ".join([*self.prefix, *argv])) from error


def check_node(node: str) -> str:
    """Return the name of a node; raise if it is unsafe in an argument list or in a shell on the scheduler's machine."""
    if not _NODE.fullmatch(node):
        raise BadInputError("GS-812", f"{node!r} is not a node name")
    return node


def wait_until(free: Callable[[], str], seconds: float, stop: threading.Event) -> str:
    """Call `free` until it returns no obstacle, for up to `seconds`; return the last obstacle."""
    until = time.monotonic() + seconds
    while reason := free():
        if time.monotonic() >= until or stop.wait(min(_POLL_SECONDS, max(0.05, until - time.monotonic()))):
            return reason
    return ""


@contextmanager
def given_back(taken: bool, back: Callable[[], object], by_hand: str) -> Iterator[None]:
    """Return a node to service if its scheduler fails while we drain it; if that fails too, the error says so."""
    try:
        yield
    except GpuSetupError as error:
        if taken:
            try:
                back()
            except GpuSetupError:
                raise SchedulerError(
                    error.reference, error.message, context=error.context, note="the node may still be drained",
                    hint=f"to return it to service: {by_hand}",
                ) from error  # fmt: skip
        raise


def words(argv: Sequence[str], node: str) -> list[str]:
    """Replace {node} in a command by the node's name."""
    return [word.replace("{node}", check_node(node)) for word in argv]


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
        return self.reason.partition(" : ")[0] == MARK  # Slurm itself adds to a reason: " : reboot issued"


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
            if left and taken:
                self._resume(node)
        if left:
            return Drained(ok=False, ours=seen.drained and seen.ours, why=left)
        whose = "" if taken or seen.ours else f"drained by someone else: {seen.reason or 'no reason given'}"
        return Drained(ok=True, ours=taken or seen.ours, why=whose)

    def undrain(self, node: str) -> str:
        """Resume a node that we drained, once slurmd answers, unless somebody else has drained it meanwhile."""
        seen = self.node(node)
        if seen.silent:
            wait_until(lambda: "silent" if self.node(node).silent else "", _BACK_SECONDS, self.call.stop)
            seen = self.node(node)
        if seen.silent:
            return "slurmd does not answer"
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
        return shlex.join([*self.call.prefix, "scontrol", "update", f"NodeName={node}", "State=RESUME"])

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


_CORDON = '{"spec":{"unschedulable":true}}'
_EVICTION_SECONDS = 300
gpu_pods = host_code("gpu_probe.sessions").gpu_pods
"""Returns the running pods with a GPU; hosts use the same code."""


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """Kubernetes, on this machine or wherever the caller's prefix leads.

    A cordon is ours while the API server names gpusetup as the manager of the field; an uncordon by hand ends that.
    """

    call: Caller = field(default_factory=Caller)
    name: str = "kubernetes"

    def drain(self, node: str, seconds: float) -> Drained:
        """Wait for pods with a GPU; evict the rest with `kubectl drain`, which respects disruption budgets."""
        cordoned, ours = self._node(node)
        with given_back(not cordoned, partial(self.undrain, node), self.by_hand(node)):
            if not cordoned:
                patch = (f"--field-manager={MARK}", f"--patch={_CORDON}")
                self.call.output_of("kubectl", "patch", "node", node, *patch)
            left = wait_until(lambda: self._with_gpu(node), seconds, self.call.stop) or self._evict(node)
            if left and not cordoned:
                self.undrain(node)
        if left:
            return Drained(ok=False, ours=cordoned and ours, why=left)
        return Drained(
            ok=True, ours=not cordoned or ours, why="" if not cordoned or ours else "cordoned by someone else"
        )

    def _evict(self, node: str) -> str:
        wait = f"--timeout={_EVICTION_SECONDS}s"
        done = self.call("kubectl", "drain", node, "--ignore-daemonsets", wait, seconds=_EVICTION_SECONDS + 30)
        return "" if done.ok else " ".join((done.err or done.out).split())[-400:] or f"kubectl drain: exit {done.code}"

    def undrain(self, node: str) -> str:
        """Uncordon a node that we cordoned, unless somebody else has cordoned it meanwhile."""
        cordoned, ours = self._node(node)
        if cordoned and ours:
            self.call.output_of("kubectl", "uncordon", node)
        return "someone else cordoned it meanwhile" if cordoned and not ours else ""

    def drained_by_us(self, node: str) -> bool:
        """Return whether the node is cordoned by us."""
        return all(self._node(node))

    def by_hand(self, node: str) -> str:
        """Return the command that returns the node to service."""
        return shlex.join([*self.call.prefix, "kubectl", "uncordon", node])

    def _node(self, node: str) -> tuple[bool, bool]:
        """Return whether a node is cordoned, and whether gpusetup manages that field."""

        def look(told: Any) -> tuple[bool, bool]:
            managed = [one for one in told["metadata"].get("managedFields") or () if one["manager"] == MARK]
            ours = any("f:unschedulable" in one["fieldsV1"].get("f:spec", ()) for one in managed)
            return bool((told.get("spec") or {}).get("unschedulable")), ours

        return self.call.read(look, "kubectl", "get", "--raw", f"/api/v1/nodes/{check_node(node)}")

    def _with_gpu(self, node: str) -> str:
        where = ("--all-namespaces", f"--field-selector=spec.nodeName={node}", "--output=json")
        pods = self.call.read(gpu_pods, "kubectl", "get", "pods", *where)
        return f"pods with a GPU run: {', '.join(pods[:8])}" if pods else ""


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
        """Run the command. Exit 0: drained; 75 or a timeout: busy; anything else is an error.

        A command that was stopped may have drained the node already, so the node is returned to service.
        """
        done = self.call(*words(self.take, node), seconds=seconds)
        if done.ok:
            return Drained(ok=True, ours=True)
        said = " ".join((done.err or done.out).split())[:400]
        if done.timed_out:
            late = f"the drain command was still running after {seconds:.0f} s"
            trouble = self.undrain(node)
            return Drained(ok=False, why=f"{late}; it may be drained: {trouble}" if trouble else late)
        if done.code == BUSY:
            return Drained(ok=False, why=said or "it is busy")
        raise SchedulerError(
            "GS-811", f"the drain command failed (exit {done.code}): {said}", context=" ".join(done.argv),
            note="the host is unchanged",
        )  # fmt: skip

    def undrain(self, node: str) -> str:
        """Run the command that returns the node to service."""
        if not self.give:
            return "no --undrain command was given"
        done = self.call(*words(self.give, node))
        return "" if done.ok else " ".join((done.err or done.out).split())[:400] or f"exit {done.code}"

    def drained_by_us(self, node: str) -> bool:
        """Return False: a command leaves no mark."""
        del node
        return False

    def by_hand(self, node: str) -> str:
        """Return the command that returns the node to service."""
        return shlex.join(words((*self.call.prefix, *self.give), node)) if self.give else ""
