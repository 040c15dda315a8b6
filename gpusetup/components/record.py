"""Reads a host's record, which another version of gpusetup, or the roles alone, may have written.

A lock that does not fit only makes that lock unusable (`unread` says why). Damage in a part that removal depends on
makes the whole record unreadable, since removal would miss changes. Unknown fields are ignored, except in a lock: it is
written again without them, so they count as unread.
"""

from typing import Any

import msgspec

from gpusetup.components import judge
from gpusetup.errors import Exit, wrong_field
from gpusetup.model.applied import NO_LOCK, SCHEMA, Applied, HostRecord, Lost, Verified
from gpusetup.model.facts import HostFacts
from gpusetup.model.plan import Refusal
from gpusetup.model.stack import Stack


def read_applied(document: object) -> Applied:
    """Return the parts of a lock that this version understands; `unread` says why it cannot be planned from."""
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
    """Return the valid fields of a struct, and what is wrong with the others."""
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
            text, path = wrong_field(error)
            wrong.append(f"{text} at `{root}.{name}{path[1:]}`")
    return parts, wrong


def read_record(document: object) -> tuple[HostRecord | None, str]:
    """Return a host's record, or None and why it cannot be used; (None, "") for a host without a record."""
    if document is None:
        return None, ""
    reason = judge.record_form.wrong(document)
    if reason or not isinstance(document, dict):
        return None, reason
    apply = document.get("apply", {})
    # Damage in these does not matter to removal.
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


_NOTHING = HostRecord()
_OF_APPLIES = SCHEMA.rpartition("/")[0] + "/"


def record_of(facts: HostFacts) -> HostRecord:
    """Return the host's record; an empty one if there is none."""
    return facts.state or _NOTHING


def wish_on_record(facts: HostFacts, field: str) -> Any:
    """Return a component's wish from the unfinished apply, else from the last finished one; None: neither has one."""
    found = (getattr(lock.wanted, field) for lock in record_of(facts).locks if lock.wanted is not None)
    return next((wish for wish in found if wish), None)


def unread(facts: HostFacts) -> str:
    """Return what this version cannot read in the latest lock; "" if it can read all of it."""
    lock = next(iter(record_of(facts).locks), NO_LOCK)
    return lock.unread if lock.schema.startswith(_OF_APPLIES) else ""


def hidden(facts: HostFacts) -> Refusal | None:
    """Return the refusal for a host whose record cannot be read; None if it can, or there never was one."""
    reason = facts.record_unread
    if not reason:
        return None
    hint = "only root may read it: use -K, or a user who can become root"
    if facts.record_lost:
        hint = "restore it from a backup; without one, gpusetup apply sets it aside and starts a new record"
    message = f"the record of what was applied cannot be read: {reason}"
    return Refusal(reference="GS-801", message=message, hint=hint, exit=int(Exit.REFUSED))


def planned_from(facts: HostFacts) -> tuple[str, ...]:
    """Return the apply on record and when it finished, from which a plan of this host is made; () if it is hidden."""
    last = record_of(facts).apply
    return () if hidden(facts) else (last.id, last.finished or "")


def forgotten(facts: HostFacts) -> str:
    """Return a warning that an earlier record was lost, with what this one therefore lacks; "" if none was."""
    past = record_of(facts).lost
    if not past.why:
        return ""
    kept = f"; the rest of it: {past.kept}" if past.kept else ""
    since = f"changes that gpusetup made before {past.time} are unknown"
    return f"an earlier record was lost ({past.why}){kept}: {since}"
