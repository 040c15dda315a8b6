"""Read what a host tells of its record, which another version of gpusetup, or the roles alone, may have written.

A lock that does not fit says why and hides nothing else. A part that removal stands on makes the record unreadable:
what it lacks would not be undone. Fields that only another version knows are left alone, except in a lock, which is
written again: there they are named, so that nobody takes the new one for the old one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpusetup.errors import wrong_field
from gpusetup.model.applied import NO_LOCK, SCHEMA, Applied, HostRecord, Lost, Verified
from gpusetup.model.stack import Stack
from gpusetup.plan import judge

__all__ = ["read_applied", "read_record"]


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
            wrong.append(_said(error, f"{root}.{name}"))
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


def _said(error: msgspec.ValidationError, root: str) -> str:
    """Return msgspec's words with the whole path of the field."""
    text, path = wrong_field(error)
    return f"{text} at `{root}{path[1:]}`"
