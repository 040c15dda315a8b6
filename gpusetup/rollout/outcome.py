"""What became of each host: from a playbook's events to a verdict and an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.errors import Exit
from gpusetup.model.run import HostOutcome

if TYPE_CHECKING:
    from gpusetup.drive.events import Failure, HostProgress
    from gpusetup.model.plan import HostPlan

__all__ = ["exit_of", "interrupted", "not_started", "outcome_of", "planned_only", "postponed", "stopped"]

_EXITS = {
    "done": Exit.DONE,
    "unchanged": Exit.DONE,
    "nothing-to-do": Exit.DONE,
    "pending-reboot": Exit.PENDING,
    "refused": Exit.REFUSED,
    "unreachable": Exit.UNREACHABLE,
    "failed": Exit.FAILED,
    "verify-failed": Exit.VERIFY_FAILED,
    "interrupted": Exit.INTERRUPTED,
    "not-started": Exit.PENDING,
    "postponed": Exit.PENDING,
}
_COPIED = (
    "simulated", "now", "stack", "actions", "removals", "holds", "reboot", "reboot_why", "download_bytes", "kind",
    "warnings", "refusals",
)  # fmt: skip


def exit_of(outcome: HostOutcome) -> Exit:
    """Return the exit code that one host stands for."""
    if outcome.state == "refused" and outcome.refusals:
        from gpusetup.errors import gravest

        return gravest([Exit(refusal.exit) for refusal in outcome.refusals])
    return _EXITS[outcome.state]


def planned_only(plan: HostPlan) -> HostOutcome:
    """Return the outcome of a host that apply did not touch."""
    states: dict[str, Any] = {"change": "refused", "failed": "refused"}
    return HostOutcome(state=states.get(plan.state, plan.state), **_copied(plan))


def not_started(plan: HostPlan) -> HostOutcome:
    """Return the outcome of a host whose batch was never begun."""
    return HostOutcome(state="not-started", **_copied(plan))


def postponed(plan: HostPlan, why: str) -> HostOutcome:
    """Return the outcome of a host that is at work and stays as it is."""
    return HostOutcome(state="postponed", pending=(why,), **_copied(plan))


def stopped(outcomes: dict[str, HostOutcome], allowed: int) -> bool:
    """Tell whether a rollout ends here: more hosts failed than are allowed to, or a person said stop."""
    states = [outcome.state for outcome in outcomes.values() if outcome.seconds]
    failed = sum(1 for state in states if state in {"failed", "unreachable", "verify-failed"})
    return failed > allowed or "interrupted" in states


def outcome_of(plan: HostPlan, host: HostProgress, seconds: float) -> HostOutcome:
    """Return the outcome of a host that apply worked on."""
    told = _result(host)
    common = _copied(plan) | {
        "changed": host.changed,
        "seconds": round(seconds, 1),
        "phases": {role: round(spent, 1) for role, spent in host.seconds.items() if spent >= 0.05},
    }
    if host.failure is not None:
        return _failed(host.failure, common)
    state = str(told.get("state", "done"))
    reasons = tuple(str(item) for item in (told.get("reboot") or {}).get("reasons", ()))
    return HostOutcome(
        state="pending-reboot" if state == "pending-reboot" else "unchanged" if state == "unchanged" else "done",
        pending=reasons,
        # A reboot, done or pending, starts them anew.
        restarts=() if plan.reboot else tuple(host.data.get("gpu_container_runtime", {}).get("pending") or ()),
        packages=told.get("packages") or {},
        history_id=str(told.get("history_id") or ""),
        **common,
    )


def interrupted(plan: HostPlan, host: HostProgress, seconds: float) -> HostOutcome:
    """Return the outcome of a host whose work a person stopped."""
    where = host.task or "between two steps"
    return HostOutcome(
        state="interrupted", failed_at=where, changed=host.changed, seconds=round(seconds, 1), **_copied(plan)
    )


def _result(host: HostProgress) -> dict[str, Any]:
    told = host.data.get("gpu_state", {}).get("gpu_result")
    return told if isinstance(told, dict) else {}


def _failed(failure: Failure, common: dict[str, Any]) -> HostOutcome:
    document = dict(failure.document or {})
    document.setdefault("message", " ".join(failure.message.split())[:2000])
    return HostOutcome(
        state="unreachable" if failure.unreachable else "failed", failed_at=failure.task, failure=document, **common
    )


def _copied(plan: HostPlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in _COPIED}
