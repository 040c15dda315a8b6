"""What a host's record says was applied, and what was begun and never finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts

__all__ = ["locks", "lost", "unfinished"]


def unfinished(facts: HostFacts) -> dict[str, Any] | None:
    """Return the apply that began and has not written down its end, None when there is none."""
    apply = (facts.state or {}).get("apply")
    return apply if isinstance(apply, dict) and apply and not apply.get("finished") else None


def locks(facts: HostFacts) -> tuple[dict[str, Any], ...]:
    """Return what the host was to become, the latest first: by the apply under way, by the last one that finished."""
    found = ((unfinished(facts) or {}).get("lock"), (facts.state or {}).get("lock"))
    return tuple(lock for lock in found if isinstance(lock, dict) and lock)


def lost(facts: HostFacts) -> str:
    """Say why the record of a host that gpusetup has changed cannot be read; nothing when it can, or there is none."""
    if facts.state is not None:
        return ""
    return next((item.reason for item in facts.unreadable if item.field == "state"), "")
