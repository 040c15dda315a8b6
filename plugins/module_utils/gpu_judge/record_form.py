"""Validate a host's record: the host does so before it changes anything, the controller before it plans.

Fields that are only displayed or computed again (`lock`, `verified`, `lost`, the lock of an apply under way) are not
checked, nor are fields of other versions. Anything else that does not fit could not be undone.
"""

from typing import Any, Dict

_TEXT = (str,)
_NUMBER = (int,)
_FLAG = (bool,)
_NOTHING = (type(None),)
_MAYBE = _TEXT + _NOTHING
_TEXTS = [_TEXT]
_VERSIONS = {"": _TEXT}
_KEPT: Dict[str, Any] = {
    "sha256!": _TEXT, "mode": _NUMBER + _NOTHING, "owner": [_NUMBER], "link": _TEXT, "attributes": _VERSIONS,
    "?": True,
}  # fmt: skip
_FILE: Dict[str, Any] = {
    "sha256": _MAYBE, "present": _FLAG, "edited": _FLAG, "mode": _NUMBER + _NOTHING,
    "folders": _TEXTS, "apply": _MAYBE, "original": _KEPT, "previous": _KEPT, "now": _MAYBE, "hint": _TEXT,
    "link": _TEXT,
}  # fmt: skip
_SERVICE: Dict[str, Any] = {"enabled": _FLAG, "was_enabled": _FLAG, "was_active": _FLAG}
_PYTHON: Dict[str, Any] = {
    "path": _MAYBE, "packages": _VERSIONS, "adopted": _FLAG, "unwanted": _FLAG, "now": _MAYBE, "?": True,
}  # fmt: skip
_APPLY: Dict[str, Any] = {"id": _TEXT, "digest": _TEXT, "started": _MAYBE, "finished": _MAYBE}
_LAST: Dict[str, Any] = dict(_APPLY, **{"?": True})
_APPLY["last"] = _LAST["last"] = _LAST
_LAYOUT: Dict[str, Any] = {
    "enabled!": _FLAG,
    "instances!": [{"profile!": _TEXT, "start": _NUMBER, "count": _NUMBER, "compute!": _TEXTS}],
}
_RECORD: Dict[str, Any] = {
    "schema": _TEXT,
    "apply": _APPLY,
    "expect": {
        "parts": _VERSIONS, "driver_version": _MAYBE, "driver_module": _MAYBE, "kernels": _TEXTS, "python": _PYTHON,
        "environments": [_PYTHON],
    },
    "waits": {"boot": _TEXT, "what": {"": _TEXTS}},
    "packages": _VERSIONS,
    "brought": _VERSIONS,
    "moved": _VERSIONS,
    "left": _VERSIONS,
    "made": {"": _MAYBE},
    "taken": _VERSIONS,
    "counted": _TEXT,
    "listed": _VERSIONS,
    "holds": _TEXTS,
    "free": _TEXTS,
    "files": {"": _FILE},
    "links": {"": _MAYBE},
    "services": {"": _SERVICE},
    "streams": {"": _MAYBE},
    "open": {"": {"what!": _TEXT, "aim": _TEXT, "since!": _TEXT, "apply": _MAYBE}},
    "previous": {"apply": _TEXT, "things": [{"thing!": _TEXT, "noted!": (list,)}]},
    "alternatives": {"": _TEXT},
    "environments": {"": _MAYBE},
    "folders": {"": _TEXTS},
    "arguments": _TEXTS,
    "mig": {"found": {"": dict(_LAYOUT, **{"?": True})}, "wanted": {"": _LAYOUT}},
    "runfile": {"path": _TEXT, "version": _TEXT, "replaced": _FLAG},
}  # fmt: skip
"""A form is a tuple of types, a list of one form, or a dict: "" is the form of all its values, else each name has its
own. `!` marks a required name; with "?" the value may also be null.
"""


def wrong(document: Any) -> str:
    """Return what makes a record unusable, and where; an empty text when it is usable."""
    if not isinstance(document, dict):
        return "its JSON has an unexpected structure"
    return _wrong(document, _RECORD, "$")


def _wrong(value: Any, form: Any, where: str) -> str:
    if isinstance(form, tuple):
        fits = isinstance(value, form) and (not isinstance(value, bool) or bool in form)
        return "" if fits else f"`{where}` is {_kind(value)}"
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"`{where}` is {_kind(value)}"
        found = (_wrong(item, form[0], f"{where}[{number}]") for number, item in enumerate(value))
    elif value is None and form.get("?"):
        return ""
    elif not isinstance(value, dict):
        return f"`{where}` is {_kind(value)}"
    elif "" in form:
        found = (_wrong(item, form[""], where + "[...]") for item in value.values())
    else:
        known = [(name.rstrip("!"), inner) for name, inner in form.items() if name != "?"]
        lacking = [name[:-1] for name in form if name.endswith("!") and name[:-1] not in value]
        if lacking:
            return f"`{where}` has no `{lacking[0]}`"
        found = (_wrong(value[name], inner, f"{where}.{name}") for name, inner in known if name in value)
    return next(filter(None, found), "")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
