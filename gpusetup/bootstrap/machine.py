"""The states of a bootstrap and their transitions. Pure: time, boot and outcomes are arguments.

    waiting → fetching → applying → done | nothing-to-do | pending-reboot | failed
                            ↓ ↑
                 rebooting or retrying

An image goes from applying to sealing to sealed; a machine in use ends at pending-reboot where a new one would reboot.

`begin` continues from the status of an earlier boot or a killed process; `advance` processes the outcome of one step.
"""

from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec.structs import replace

from gpusetup.errors import shipped
from gpusetup.model.status import FINAL, Problem, Reboot, State, Status

STEPS = msgspec.json.decode(shipped("bootstrap/data/steps.json"), type=dict[State, tuple[int, str, str]])
OF = 4
_RETRIES = {6: 8, 7: 3}
"""Exit code of apply → number of tries: a mirror may come back, and a transaction is resumed."""
_CUTS = max(_RETRIES.values())
"""Number of boots, failed tries among them, that may end while the stack is applied."""
_RETRIES_OF = {"GS-403": 12, "GS-411": 8, "GS-442": 8}
"""Reference → number of tries: another apply on this host ends at some time, and what it changed is planned anew; a key
server may answer later."""


@dataclass(frozen=True)
class Limits:
    """The limits set by the configuration."""

    reboots: int = 2
    fetches: bool = False
    """Whether a lock is fetched from a URL."""
    image: bool = False
    """Whether the machine becomes an image: it does not reboot and is cleaned at the end."""
    asks: bool = False
    """Whether people decide about reboots, because the machine is in use."""


@dataclass(frozen=True)
class Moment:
    """The time and the boot of a transition."""

    time: str
    boot: str


@dataclass(frozen=True)
class Outcome:
    """The result of a state's work."""

    kind: Literal["ok", "nothing-to-do", "reboot", "problem"]
    problem: Problem | None = None
    reasons: tuple[str, ...] = field(default=())
    verified: str = ""
    simulated: bool = False


def begin(before: Status | None, now: Moment) -> Status:
    """Return the status to start with: fresh, or after a reboot, a kill or a failure."""
    if before is None or before.state in {"done", "sealed"}:
        return _enter(Status(state="waiting", started=now.time, since=now.time, boot=now.boot), "waiting", now)
    if before.state == "pending-reboot":
        return _enter(replace(before, reboots=()), "waiting", now)
    if before.state == "failed":
        return _enter(replace(before, ok=True, attempts=0, reboots=(), last_error=None), "waiting", now)
    if before.state == "rebooting" and before.boot == now.boot:
        return replace(before, step=STEPS["rebooting"][0], of=OF)
    if before.state == "applying" and before.boot != now.boot:
        before = replace(before, attempts=before.attempts + 1)
        if before.attempts >= _CUTS:
            told = f"the machine went down while it applied the stack, at try {before.attempts}"
            hint = "see the end of the last boot: journalctl --boot -1 --lines 200"
            return _failed(before, Problem(reference="GS-740", message=told, hint=hint), now)
    return _enter(before, "waiting", now)


def advance(status: Status, outcome: Outcome, limits: Limits, now: Moment) -> Status:
    """Return the status after an outcome; raise ValueError for a final state."""
    if status.state in FINAL:
        raise ValueError(status.state)
    if outcome.kind == "problem":
        return _troubled(status, outcome.problem or Problem(reference="GS-740", message="no reason given"), now)
    if status.state == "waiting":
        return _enter(status, "fetching" if limits.fetches else "applying", now)
    if status.state in {"fetching", "retrying"}:
        return _enter(status, "applying", now)
    if status.state == "applying":
        return _applied(status, outcome, limits, now)
    if status.state == "sealing":
        return _enter(status, "sealed", now)
    return _enter(status, "waiting", now)


def pause_before(attempt: int) -> float:
    """Return the seconds to wait before the next try."""
    return float(min(15 * 2 ** max(attempt - 1, 0), 300))


def _applied(status: Status, outcome: Outcome, limits: Limits, now: Moment) -> Status:
    told = replace(status, verified=outcome.verified, simulated=outcome.simulated)
    if outcome.kind == "nothing-to-do":
        return _enter(replace(told, last_error=None), "nothing-to-do", now)
    if limits.image:
        return _enter(replace(told, last_error=None), "sealing", now)
    if outcome.kind == "ok":
        return _enter(replace(told, last_error=None), "done", now)
    reason = "; ".join(outcome.reasons) or "the driver asks for it"
    if limits.asks:
        return _enter(replace(told, last_error=None), "pending-reboot", now, doing=f"a reboot is needed: {reason}")
    if len(status.reboots) >= limits.reboots:
        problem = Problem(
            reference="GS-741",
            message=f"another reboot is needed ({reason}), and all {limits.reboots} allowed reboots are used",
            hint="find out why: gpusetup doctor",
            exit=9,
        )
        return _failed(told, problem, now)
    reboots = (*status.reboots, Reboot(time=now.time, reason=reason, boot=now.boot))
    return _enter(replace(told, reboots=reboots, attempts=0), "rebooting", now, doing=f"rebooting: {reason}")


def _troubled(status: Status, problem: Problem, now: Moment) -> Status:
    attempts = status.attempts + 1
    allowed = _RETRIES_OF.get(problem.reference) or _RETRIES.get(problem.exit, 1)
    if status.state == "applying" and attempts < allowed:
        told = replace(status, attempts=attempts, last_error=problem)
        return _enter(told, "retrying", now, doing=f"try {attempts} of {allowed} failed: {problem.message}")
    return _failed(replace(status, attempts=attempts), problem, now)


def _failed(status: Status, problem: Problem, now: Moment) -> Status:
    return _enter(replace(status, ok=False, last_error=problem), "failed", now, doing=problem.message)


def _enter(status: Status, state: State, now: Moment, *, doing: str = "") -> Status:
    step, usual, following = STEPS[state]
    return replace(
        status, state=state, step=step, of=OF, doing=doing or usual, next=following, since=now.time, boot=now.boot
    )
