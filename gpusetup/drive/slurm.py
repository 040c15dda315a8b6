"""Slurm: waits for jobs, respects reservations and other people's drains; or holds each node with a job of our own.

With a job per node each change is visible in the queue and the accounts, and subject to the site's limits. The job
takes the whole node, so Slurm waits for the jobs that run there. Once it runs, gpusetup drains the node, so that no job
follows. The job itself does nothing: a time limit must not stop a change half-way.
"""

from __future__ import annotations

import json
import platform
import re
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal

from gpusetup.drive.schedulers import (
    HEALTH_MARK,
    MARK,
    Caller,
    Drained,
    Reboot,
    SchedulerError,
    check_node,
    given_back,
    wait_until,
)

if TYPE_CHECKING:
    from gpusetup.errors import GpuSetupError

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
        return self.take(node, seconds)

    def take(self, node: str, seconds: float, mine: str = "") -> Drained:
        """Drain a node without looking at reservations, and wait for all jobs but `mine`."""
        seen = self.node(node)
        taken = not seen.drained
        if taken:
            self.call.output_of("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={MARK}")
        with given_back(taken, partial(self._resume, node), self.by_hand(node)):
            left = wait_until(lambda: self.jobs_on(node, mine), seconds, self.call.stop)
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

    def _resume(self, node: str) -> None:
        self.call.output_of("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def jobs_on(self, node: str, mine: str = "") -> str:
        """Return which jobs except `mine` are on a node, as text; empty if there are none."""
        if not self.node(node).states & _BUSY:
            return ""
        jobs = self.call.output_of("squeue", "--noheader", "--nodelist", node, "--format=%i").split()
        others = [job for job in jobs if job != mine]
        if others:
            return f"jobs run: {', '.join(others[:8])}"
        return "" if mine in jobs else "a job is ending"

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


HOLD = Path(__file__).with_name("slurm_hold").read_bytes()
_SBATCH = (
    "sbatch", "--parsable", f"--job-name={MARK}", "--nodes=1", "--ntasks=1", "--exclusive", "--no-requeue",
    "--export=NIL", "--chdir=/", "--input=/dev/null", "--output=/dev/null", "--error=/dev/null",
)  # fmt: skip
_WAITS = ("PENDING", "CONFIGURING")
_HOPELESS: dict[str, list[str]] = json.loads(Path(__file__).with_name("slurm_waits.json").read_bytes())
"""Reasons for which a job never starts, by the beginning of Slurm's text."""
_END_SECONDS = 10.0
_SEEN_TWICE = 2
"""A reason must be seen twice: the first one may be out of date."""


class _EndedError(Exception):
    """A job ended before it started."""


@dataclass(frozen=True, kw_only=True)
class SlurmJobs(Slurm):
    """Slurm, with one job for each node that changes."""

    run: str
    words: tuple[str, ...] = ()
    """Options for sbatch: account, partition and so on."""
    partition: str = ""
    reservation: str = ""
    next_state: Literal["DOWN", "RESUME"] = "DOWN"
    """A node's state after a reboot."""
    jobs: dict[str, str] = field(default_factory=dict)
    """The job that holds each node."""
    foreign: set[str] = field(default_factory=set)
    """Nodes that somebody else drained: they change without a job, and stay drained."""

    # --- take -----------------------------------------------------------------------------------------------------

    def drain(self, node: str, seconds: float) -> Drained:
        """Hold a node with a job, then drain it; take over the job or drain of an earlier run."""
        seen, until = self.node(node), monotonic() + seconds
        if (held := self.reserved(node)) and held != self.reservation:
            return Drained(ok=False, why=f"reserved: {held}")
        job, whose = self._left(node)
        if whose:
            return Drained(ok=False, why=f"gpusetup on {whose} holds it with job {job}")
        if job:
            self.jobs[node] = job
        elif seen.drained or (seen.ours and "DOWN" in seen.states):
            if not seen.ours:
                self.foreign.add(node)
            return self.take(node, seconds)  # Slurm starts no job there
        elif "DOWN" in seen.states or seen.silent:
            state = "does not answer" if seen.silent else "is down"
            raise SchedulerError(
                "GS-817",
                f"{node} {state} for Slurm: {seen.reason or 'no reason given'}",
                note="the node is unchanged",
                hint=f"fix it and return it (scontrol update NodeName={node} State=RESUME), or drain it"
                " (State=DRAIN Reason=...): gpusetup changes a drained node without a job",
            )
        else:
            self._partition(node)
            self.jobs[node] = self._submit(node)
        try:
            return self._held(node, until)
        except BaseException:
            self._end(node)
            raise

    def _held(self, node: str, until: float) -> Drained:
        """Wait until the job runs, then drain the node."""
        job, reasons = self.jobs[node], list[str]()
        try:
            why = wait_until(lambda: self._waits(node, job, reasons), until - monotonic(), self.call.stop)
        except _EndedError as ended:
            why = str(ended)
        drained = Drained(ok=False, why=why) if why else self.take(node, max(0.0, until - monotonic()), job)
        if not drained.ok:
            self._end(node)
        return drained

    def _partition(self, node: str) -> None:
        """Raise if the node's partition is not up: it would accept the job and never start it."""
        words = (f"--partition={self.partition}",) if self.partition else ()
        told = self.call.output_of("sinfo", "--noheader", f"--nodes={node}", *words, "--format=%P/%a").split()
        states = dict(line.split("/", 1) for line in told if "/" in line)
        mine = states if self.partition else {name: up for name, up in states.items() if name.endswith("*")}
        if self.partition and not states:
            raise _cannot(f"{node} is not in the partition {self.partition}", "name another one: sinfo --Node")
        for name, state in mine.items():
            if state != "up":
                way_out = (
                    f"scontrol update PartitionName={name.rstrip('*')} State=UP, or --engine-option partition=NAME"
                )
                raise _cannot(f"the partition {name.rstrip('*')} is {state}", way_out)

    def _submit(self, node: str) -> str:
        comment = f"--comment={MARK}:{_here()}:{self.run}"
        done = self.call(*_SBATCH, comment, f"--nodelist={check_node(node)}", *self.words, stdin=HOLD)
        if not done.ok:
            said = " ".join((done.err or done.out).split())[:400] or f"exit {done.code}"
            said = "it did not answer" if done.timed_out else said
            raise _cannot(
                said, "account, partition, qos, reservation and time are settings: --engine-option NAME=VALUE"
            )
        return done.out.split(";")[0].strip()

    def _waits(self, node: str, job: str, reasons: list[str]) -> str:
        """Return why a job has not started yet; raise if it never will."""
        told = self.call.output_of("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T/%r").strip()
        state, _, reason = told.partition("/")
        if state == "RUNNING":
            return ""
        if state not in _WAITS:
            raise _EndedError(f"its job {job} has ended in the queue: {state.lower()}")
        hopeless = next((key for key in _HOPELESS if reason.startswith(key)), None)
        reasons.append(hopeless or "")
        if hopeless and reasons[-_SEEN_TWICE:].count(hopeless) == _SEEN_TWICE:
            why, way_out = _HOPELESS[hopeless]
            raise _cannot(f"{why}: {reason}", way_out.format(job=job, node=node))
        return f"its job {job} waits ({reason}); {self.jobs_on(node) or 'no job runs there'}"

    def _left(self, node: str) -> tuple[str, str]:
        """Return the job that an earlier run left on a node, and the controller if it is another one."""
        told = self.call.output_of(
            "squeue", "--noheader", f"--name={MARK}", "--states=PENDING,CONFIGURING,RUNNING", "--format=%i/%n/%k"
        )
        for line in told.splitlines():
            job, _, rest = line.strip().partition("/")
            wanted, _, comment = rest.partition("/")
            controller = comment.split(":")[1:2]
            if wanted == node and controller:
                return job, "" if controller[0] == _here() else controller[0]
        return "", ""

    # --- while it changes -----------------------------------------------------------------------------------------

    def cannot_reboot(self) -> GpuSetupError | None:
        """Return an error if slurm.conf has no RebootProgram."""
        found = re.search(
            r"^RebootProgram\s*=\s*(.*)$", self.call.output_of("scontrol", "show", "config"), re.MULTILINE
        )
        if found and found.group(1).strip() not in ("", "(null)"):
            return None
        told = "Slurm cannot reboot nodes: slurm.conf has no RebootProgram"
        return SchedulerError("GS-818", told, note="the nodes are unchanged")

    def reboot(self, node: str) -> Reboot:
        """Return scontrol's commands; a node that somebody else drained stays drained after the reboot."""
        if node in self.foreign:
            return Reboot(command=f"scontrol reboot {check_node(node)}")
        release = ("scancel", "--batch", "--signal=USR2", self.jobs[node]) if node in self.jobs else ()
        command = f"scontrol reboot ASAP nextstate={self.next_state} reason={MARK} {check_node(node)}"
        return Reboot(command=command, release=release)

    def lost(self) -> dict[str, str]:
        """Return the nodes whose job ended in another way than we end it."""
        if not self.jobs:
            return {}
        nodes = {job: node for node, job in dict(self.jobs).items()}
        done = self.call("squeue", "--noheader", "--states=all", f"--jobs={','.join(nodes)}", "--format=%i/%T")
        told = dict(line.strip().split("/", 1) for line in done.out.splitlines() if "/" in line)
        ours = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "COMPLETED"}
        return {nodes[job]: state for job, state in told.items() if job in nodes and state not in ours}

    # --- give back ------------------------------------------------------------------------------------------------

    def undrain(self, node: str) -> str:
        """End the job, also that of an earlier run, and resume the node."""
        if node not in self.jobs:
            job, whose = self._left(node)
            if job and not whose:
                self.jobs[node] = job
        self._end(node)
        return super().undrain(node)

    def drained_by_us(self, node: str) -> bool:
        """Return whether we drained the node, or it is down after our reboot."""
        seen = self.node(node)
        return seen.ours and (seen.drained or "DOWN" in seen.states)

    def let_go(self) -> None:
        """End all remaining jobs."""
        self._end(*self.jobs)

    def _end(self, *nodes: str) -> None:
        """End the jobs of these nodes; ignore those that a user or a reboot has ended."""
        jobs = [job for node in nodes if (job := self.jobs.pop(node, ""))]
        if not jobs:
            return
        if running := self._of(jobs, "RUNNING"):
            self.call("scancel", "--batch", "--signal=USR2", *running)
            wait_until(lambda: " ".join(self._of(running, "RUNNING")), _END_SECONDS, threading.Event(), 0.5)
        if left := self._of(jobs, "PENDING,CONFIGURING,RUNNING"):
            self.call("scancel", *left)

    def _of(self, jobs: list[str], states: str) -> list[str]:
        """Return which of these jobs are in one of the states."""
        return self.call(
            "squeue", "--noheader", f"--states={states}", f"--jobs={','.join(jobs)}", "--format=%i"
        ).out.split()


def _here() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", platform.node())[:64] or "controller"


def _cannot(why: str, way_out: str) -> SchedulerError:
    return SchedulerError(
        "GS-819", f"its Slurm job cannot start: {why}", note="the node is unchanged; the job was cancelled",
        hint=way_out,
    )  # fmt: skip
