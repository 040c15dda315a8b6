"""What a host's record says was applied, and what was begun and never finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import Exit
from gpusetup.model.applied import NO_LOCK, SCHEMA, HostRecord
from gpusetup.model.plan import Refusal
from gpusetup.plan import judge

if TYPE_CHECKING:
    from gpusetup.model.applied import Applied, Apply
    from gpusetup.model.desktops import DesktopsWish
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.monitoring import Exporter
    from gpusetup.model.settings import Settings

__all__ = [
    "begun",
    "desktops_of",
    "exporter_of",
    "forgotten",
    "hidden",
    "locks",
    "lost",
    "record_of",
    "runtimes_given_up",
    "unfinished",
    "unread",
]

_NOTHING = HostRecord()
_OF_APPLIES = SCHEMA.rpartition("/")[0] + "/"


def record_of(facts: HostFacts) -> HostRecord:
    """Return what is on record; an empty record where there is none."""
    return facts.state or _NOTHING


def exporter_of(facts: HostFacts) -> Exporter | None:
    """Return what the last apply that finished, or one that was cut, set up to export figures."""
    found = (lock.wanted.monitoring for lock in locks(facts) if lock.wanted is not None)
    return next((exporter for exporter in found if exporter), None)


def desktops_of(facts: HostFacts) -> DesktopsWish | None:
    """Return who has a desktop since the last apply that finished, or by one that was cut."""
    found = (lock.wanted.desktops for lock in locks(facts) if lock.wanted is not None)
    return next((desktops for desktops in found if desktops), None)


def runtimes_given_up(facts: HostFacts, settings: Settings) -> tuple[str, ...]:
    """Return the container runtimes that an earlier apply configured and that nobody asks for any more."""
    ours, known = record_of(facts).files, judge.containers.SETTINGS
    return tuple(
        name for name, paths in known.items() if name not in settings.containers and any(path in ours for path in paths)
    )


def unfinished(facts: HostFacts) -> Apply | None:
    """Return the apply that began and has not written down its end, None when there is none."""
    apply = record_of(facts).apply
    return apply if apply != _NOTHING.apply and not apply.finished else None


def begun(facts: HostFacts) -> Applied:
    """Return what the apply under way is to make of the host; an empty lock where none is under way."""
    apply = unfinished(facts)
    return apply.lock if apply is not None else NO_LOCK


def locks(facts: HostFacts) -> tuple[Applied, ...]:
    """Return what the host was to become, the latest first: by the apply under way, by the last one that finished."""
    return tuple(lock for lock in (begun(facts), record_of(facts).lock) if lock != NO_LOCK)


def unread(facts: HostFacts) -> str:
    """Say what of the last lock another version wrote and this one does not know, nothing when all is well."""
    lock = next(iter(locks(facts)), NO_LOCK)
    return lock.unread if lock.schema.startswith(_OF_APPLIES) else ""


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
    past = record_of(facts).lost
    if not past.why:
        return ""
    kept = f"; what was left of it: {past.kept}" if past.kept else ""
    since = f"changes that gpusetup made before {past.time} are unknown"
    return f"an earlier record was lost ({past.why}){kept}: {since}"


def _reason(facts: HostFacts) -> str:
    if facts.state is not None:
        return ""
    return next((item.reason for item in facts.unreadable if item.field == "state"), "")
