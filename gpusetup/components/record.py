"""A host's record: what another version of gpusetup, or the roles alone, may have written, and what it says of applies.

A lock that does not fit says why and hides nothing else. A part that removal stands on makes the record unreadable:
what it lacks would not be undone. Fields that only another version knows are left alone, except in a lock, which is
written again: there they are named, so that nobody takes the new one for the old one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.components import judge
from gpusetup.errors import Exit, wrong_field
from gpusetup.model.applied import NO_LOCK, SCHEMA, Applied, HostRecord, Lost, Verified
from gpusetup.model.plan import Refusal
from gpusetup.model.stack import Stack

if TYPE_CHECKING:
    from gpusetup.model.applied import Apply
    from gpusetup.model.facts import HostFacts


def read_applied(document: object) -> Applied:
    """Return a lock as far as this version understands it, with the reason why it cannot be planned from."""
    if not document:
        return NO_LOCK
    if not isinstance(document, dict):
        return Applied(unread="its JSON has an unexpected structure")
    stack = document.get("stack")
    components, wrong = _fitting(stack, Stack, "$.stack") if isinstance(stack, dict) else ({}, [])
    parts, more = _fitting({**document, "stack": components} if components else document, Applied, "$")
    wrong += more
    if parts.get("schema") != SCHEMA:
        wrong = [f"its schema is {parts.get('schema', '')!r}, not {SCHEMA!r}"]
    wrong += [f"`$.{name}` is missing" for name in ("key", "stack", "wanted") if not wrong and name not in parts]
    return Applied(**{"unread": "; ".join(wrong), **parts})


def _fitting(document: dict[str, Any], kind: type[msgspec.Struct], root: str) -> tuple[dict[str, Any], list[str]]:
    """Return the fields that fit, and what is wrong with the others."""
    types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    parts: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in document.items():
        if name not in types:
            wrong.append(f"this version does not know `{root}.{name}`")
            continue
        try:
            parts[name] = msgspec.convert(value, types[name])
        except msgspec.ValidationError as error:
            wrong.append(_error_text(error, f"{root}.{name}"))
    return parts, wrong


def read_record(document: object) -> tuple[HostRecord | None, str]:
    """Return a host's record, or None and why it cannot be used."""
    if document is None:
        return None, ""
    reason = judge.record_form.wrong(document)
    if reason or not isinstance(document, dict):
        return None, reason
    apply = document.get("apply", {})
    # What is only told, or looked at anew, spoils nothing.
    told: dict[str, Any] = {
        "lock": read_applied(document.get("lock")),
        "verified": _if_it_fits(document.get("verified"), Verified),
        "lost": _if_it_fits(document.get("lost"), Lost) or Lost(),
    }
    rest = {name: value for name, value in document.items() if name not in told}
    rest["apply"] = _without_lock(apply)
    record = msgspec.convert(rest, HostRecord)
    told["apply"] = msgspec.structs.replace(record.apply, lock=read_applied(apply.get("lock")))
    return msgspec.structs.replace(record, **told), ""


def _without_lock(apply: dict[str, Any]) -> dict[str, Any]:
    parts = {name: value for name, value in apply.items() if name != "lock"}
    return {**parts, "last": _without_lock(parts["last"])} if parts.get("last") else parts


def _if_it_fits(value: object, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind) if value else None
    except msgspec.ValidationError:
        return None


def _error_text(error: msgspec.ValidationError, root: str) -> str:
    """Return msgspec's words with the whole path of the field."""
    text, path = wrong_field(error)
    return f"{text} at `{root}{path[1:]}`"


_NOTHING = HostRecord()
_OF_APPLIES = SCHEMA.rpartition("/")[0] + "/"


def record_of(facts: HostFacts) -> HostRecord:
    """Return what is on record; an empty record where there is none."""
    return facts.state or _NOTHING


def wish_on_record(facts: HostFacts, field: str) -> Any:
    """Return what the last apply that finished, or one that was cut, wanted of a component; None: nothing."""
    found = (getattr(lock.wanted, field) for lock in locks(facts) if lock.wanted is not None)
    return next((wish for wish in found if wish), None)


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
    kept = f"; the rest of it: {past.kept}" if past.kept else ""
    since = f"changes that gpusetup made before {past.time} are unknown"
    return f"an earlier record was lost ({past.why}){kept}: {since}"


def _reason(facts: HostFacts) -> str:
    if facts.state is not None:
        return ""
    return next((item.reason for item in facts.unreadable if item.field == "state"), "")
