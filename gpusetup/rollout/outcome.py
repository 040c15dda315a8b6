"""The outcome of each host: from a playbook's events to a state and an exit code."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import median
from typing import Literal

from msgspec import Struct, ValidationError, convert
from msgspec.json import decode
from msgspec.structs import replace

from gpusetup.drive.causes import counted
from gpusetup.drive.events import HostProgress
from gpusetup.drive.rundir import runs_in_order
from gpusetup.errors import Exit, gravest
from gpusetup.model import UNDECODED
from gpusetup.model.lifecycle import Applied, HostOutcome, PackageChanges, State, Trouble
from gpusetup.model.plan import Away, HostPlan

_EXITS = {
    "done": Exit.DONE, "unchanged": Exit.DONE, "nothing-to-do": Exit.DONE, "pending-reboot": Exit.PENDING,
    "refused": Exit.REFUSED, "unreachable": Exit.UNREACHABLE, "failed": Exit.FAILED,
    "verify-failed": Exit.VERIFY_FAILED, "interrupted": Exit.INTERRUPTED, "not-started": Exit.PENDING,
    "postponed": Exit.PENDING,
}  # fmt: skip

_FAILED = {"failed", "unreachable", "verify-failed"}


class _Reboot(Struct, frozen=True):
    reasons: tuple[str, ...] = ()


class _Told(Struct, frozen=True):
    """The result of gpu_state at the end of the play."""

    state: str = "done"
    history_id: str | None = None
    packages: PackageChanges = PackageChanges()
    reboot: _Reboot = _Reboot()
    waits: tuple[str, ...] = ()


def exit_of(outcome: HostOutcome) -> Exit:
    """Return the exit code of one host."""
    if outcome.state == "refused" and outcome.refusals:
        return gravest([Exit(refusal.exit) for refusal in outcome.refusals])
    found = _EXITS[outcome.state]
    return Exit.PENDING if found is Exit.DONE and outcome.waits else found


def planned_only(plan: HostPlan) -> HostOutcome:
    """Return the outcome of a host that apply did not touch."""
    if plan.state == "change" or plan.state == "failed":  # noqa: PLR1714 - by == alone mypy knows what is left
        return _outcome(plan, "refused")
    return _outcome(plan, plan.state)


_STOPPED = "the run was stopped before it; run the same command to go on"


def not_started(plan: HostPlan, why: str = _STOPPED) -> HostOutcome:
    """Return the outcome of a host that was not started, with the reason."""
    found = _outcome(plan, "not-started")
    return replace(found, warnings=(why, *found.warnings))


def postponed(plan: HostPlan, why: str) -> HostOutcome:
    """Return the outcome of a busy host, which stays as it is."""
    return replace(_outcome(plan, "postponed"), pending=(why,))


def stopped(outcomes: dict[str, HostOutcome], allowed: int) -> str:
    """Return why no other host starts: too many failed, or the user stopped the rollout; empty: the next ones start."""
    states = [outcome.state for outcome in outcomes.values() if outcome.seconds]
    failed = sum(state in _FAILED for state in states)
    if failed > allowed:
        return f"{counted(failed, 'host')} failed, more than --max-fail {allowed} allows; mend them, then run it again"
    return _STOPPED if "interrupted" in states else ""


def closed_domains(outcomes: dict[str, HostOutcome], domains: dict[str, str], allowed: int) -> dict[str, int]:
    """Return the domains with more than `allowed` failed hosts, and the number of failed hosts."""
    failed = Counter(
        domains[name]
        for name, outcome in outcomes.items()
        if name in domains and outcome.seconds and outcome.state in _FAILED
    )
    return {domain: count for domain, count in failed.items() if count > allowed}


def outcome_of(plan: HostPlan, host: HostProgress, seconds: float, *, stopped: bool = False) -> HostOutcome:
    """Return the outcome of a host that apply worked on; `stopped`: Ctrl-C ended the play."""
    elapsed = host.data.get("gpu_reboot", {}).get("elapsed")
    found = replace(
        _outcome(plan, "done"), changed=host.changed, seconds=round(seconds, 1),
        phases={role: round(spent, 1) for role, spent in host.seconds.items() if spent >= 0.05},
        reboot_seconds=float(elapsed) if isinstance(elapsed, int | float) else 0.0,
    )  # fmt: skip
    failure = host.failure
    if failure is not None:
        return replace(found, state=failure.state(host.changed), failed_at=failure.task, failure=failure.trouble)
    answer = host.data.get("gpu_state", {}).get("gpu_result")
    if answer is None:  # Ctrl-C, or a setting of Ansible that ends the play of all hosts, as any_errors_fatal does
        found = replace(found, state="interrupted" if stopped else "failed", failed_at=host.task or "between two steps")
        why = Trouble(message="Ansible ended the play before this host's last step", hint="the same command goes on")
        return found if stopped else replace(found, failure=why)
    try:
        told = convert(answer, _Told)
    except ValidationError as error:  # a host may answer anything, and must not end the run for the others
        return replace(found, state="failed", failure=Trouble(message=f"its answer cannot be used: {error}"))
    return replace(
        found, state=told.state if told.state in {"pending-reboot", "unchanged"} else "done",
        pending=told.reboot.reasons, waits=told.waits, packages=told.packages, history_id=told.history_id or "",
    )  # fmt: skip


_PLANNED = [name for name in HostOutcome.__struct_fields__ if name in HostPlan.__struct_fields__ and name != "state"]


def _outcome(plan: HostPlan, state: State) -> HostOutcome:
    return HostOutcome(state=state, **{name: getattr(plan, name) for name in _PLANNED})


_RUNS = 20
"""The number of newest runs that are read."""


def with_downtime(plans: Mapping[str, HostPlan], home: Path) -> dict[str, HostPlan]:
    """Return plans with the expected downtime of each host: from its past runs, else the fleet's, else a benchmark."""
    changes = {name for name, plan in plans.items() if plan.state == "change"}
    known: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for run in runs_in_order(home)[-_RUNS:] if changes else ():
        with suppress(OSError, *UNDECODED):  # no apply, or one of another version
            for name, was in decode((run / "applied.json").read_bytes(), type=Applied).hosts.items():
                for whose in ("", name) if was.state == "done" and was.changed else ():
                    told = (sum(was.phases.values()), was.reboot_seconds)
                    known.setdefault((whose, was.reboot_seconds > 0), []).append(told)
    took = {("", bool(reboot)): away for reboot, away in enumerate(_bench())}
    for (whose, reboot), times in known.items():
        whole, reboots = map(median, zip(*times, strict=True))
        source: Literal["host", "fleet"] = "host" if whose else "fleet"
        took[whose, reboot] = Away(
            seconds=round(whole, 1), reboot_seconds=reboots, source=source, runs=len(times)
        )  # fmt: skip
    return {
        name: replace(plan, away=took.get((name, plan.reboot)) or took["", plan.reboot]) if name in changes else plan
        for name, plan in plans.items()
    }


@cache
def _bench() -> list[Away]:
    """Return the downtimes of the benchmark: without a reboot, and with one."""
    return convert(decode(Path(__file__).with_name("data").joinpath("away.json").read_bytes())["figures"], list[Away])


def summary(outcome: HostOutcome) -> str:
    """Return an outcome as a short text."""
    packages = outcome.packages
    moved = {name: " to ".join(versions) for name, versions in (packages.moved or {}).items()}
    changed = {"installed": packages.installed or {}, "moved": moved, "removed": packages.removed or {}}
    parts = [outcome.state + (f" at {outcome.failed_at}" if outcome.failed_at else "")]
    parts += [
        f"{word}: " + ", ".join(f"{name} {version}" for name, version in sorted(named.items()))
        for word, named in changed.items()
        if named
    ]
    parts += [refusal.reference for refusal in outcome.refusals]
    return "; ".join(parts)
