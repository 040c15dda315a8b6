"""What a host's record says was applied, and what was begun and never finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.errors import Exit
from gpusetup.model.plan import Refusal

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts

__all__ = ["forgotten", "hidden", "locks", "lost", "unfinished"]


def unfinished(facts: HostFacts) -> dict[str, Any] | None:
    """Return the apply that began and has not written down its end, None when there is none."""
    apply = (facts.state or {}).get("apply")
    return apply if isinstance(apply, dict) and apply and not apply.get("finished") else None


def locks(facts: HostFacts) -> tuple[dict[str, Any], ...]:
    """Return what the host was to become, the latest first: by the apply under way, by the last one that finished."""
    found = ((unfinished(facts) or {}).get("lock"), (facts.state or {}).get("lock"))
    return tuple(lock for lock in found if isinstance(lock, dict) and lock)


def lost(facts: HostFacts) -> str:
    """Say why a host that gpusetup has changed has no readable record; nothing when it has one, or never had."""
    reason = _reason(facts)
    return "" if "ermission denied" in reason else reason


def hidden(facts: HostFacts) -> Refusal | None:
    """Return why nothing can be compared with the record, or undone by it; None when nothing is in the way."""
    reason = _reason(facts)
    if not reason:
        return None
    hint = "only root may read it: use -K, or a user who can become root"
    if lost(facts):
        hint = "restore it from a backup; without one, gpusetup apply sets it aside and starts a new record"
    message = f"the record of what was applied cannot be read: {reason}"
    return Refusal(reference="GS-801", message=message, hint=hint, exit=int(Exit.REFUSED))


def forgotten(facts: HostFacts) -> str:
    """Say what a record cannot know because an earlier one was lost."""
    past = (facts.state or {}).get("lost")
    if not isinstance(past, dict) or not past:
        return ""
    kept = f"; what was left of it: {past['kept']}" if past.get("kept") else ""
    since = f"changes that gpusetup made before {past.get('time')} are unknown"
    return f"an earlier record was lost ({past.get('why')}){kept}: {since}"


def _reason(facts: HostFacts) -> str:
    if facts.state is not None:
        return ""
    return next((item.reason for item in facts.unreadable if item.field == "state"), "")
