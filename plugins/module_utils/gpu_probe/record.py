"""Read what gpusetup recorded on this host, and the present state of the files that it wrote."""

import hashlib
import json
import os
import stat
from typing import Any, Dict, List, Optional, Set

from . import environment
from .host import LiveHost

STATE_FILE = "/var/lib/gpusetup/state.json"
MARKS = (
    "/etc/modprobe.d/gpusetup-nouveau.conf",
    "/etc/apt/preferences.d/gpusetup",
    "/etc/apt/apt.conf.d/52gpusetup-unattended-upgrades",
    "/etc/default/grub.d/gpusetup-nouveau.cfg",
)
"""Files that only an apply writes, and that removal deletes along with the record."""


def read(host: LiveHost, path: str = STATE_FILE) -> Optional[Dict[str, Any]]:
    """Return the record, with the present digests of its files and problems of its environments; None without one."""
    text = host.read(path, "state")
    if text is None:
        reason = lost(host)
        if reason:
            host.note("state", reason)
        return None
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        host.note("state", f"{path} is not valid JSON: {error}")
        return None
    if not isinstance(state, dict):
        host.note("state", f"{path} is JSON with an unexpected structure")
        return None
    files = state.get("files")
    if isinstance(files, dict):
        # As an observation, so that a capture keeps the digests, not the contents.
        now = host.observe("recorded-files", lambda: {name: _digest(host.inside(name)) for name in files}) or {}
        modes = host.observe("recorded-modes", lambda: {name: _mode(host.inside(name)) for name in files}) or {}
        for name, entry in files.items():
            if isinstance(entry, dict) and name in now:
                entry.update({"now": now[name], "mode_now": modes.get(name)})
    expect = state.get("expect")
    python = expect.get("python") if isinstance(expect, dict) else None
    if isinstance(python, dict) and isinstance(python.get("path"), str):
        _look(host, "recorded-python", python)
    named = expect.get("environments") if isinstance(expect, dict) else None
    entries = [item for item in named if isinstance(item, dict)] if isinstance(named, list) else []
    for entry in entries:
        if isinstance(entry.get("path"), str):
            _look(host, "recorded-python:" + entry["path"], entry)
    return state


def _look(host: LiveHost, name: str, entry: Dict[str, Any]) -> None:
    """Add to a recorded environment what is wrong with it now."""
    seen = host.observe(name, lambda: {"problem": environment.problem(entry)})
    if seen is not None:
        entry["now"] = seen["problem"]


def applied(path: str = STATE_FILE) -> Dict[str, Any]:
    """Return what the last apply wanted of this machine, from the recorded lock; empty without a record."""
    try:
        with open(path, encoding="utf-8") as stream:
            return dict(json.load(stream)["lock"]["wanted"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def lost(host: LiveHost) -> str:
    """Return a message if this host has files of an apply but no record of it; an empty text otherwise."""
    there = [path for path in MARKS if host.exists(path)]
    return f"gpusetup has no record of this host, but these files are its own: {', '.join(there)}" if there else ""


def names(state: Optional[Dict[str, Any]]) -> Set[str]:
    found = [(state or {}).get(key) for key in ("packages", "holds", "brought")]
    several = [part for part in found if isinstance(part, (dict, list))]
    return {name for part in several for name in part if isinstance(name, str)}


def units(state: Any) -> List[Any]:
    found = (state or {}).get("services")
    return sorted(found) if isinstance(found, dict) else []


def _mode(path: str) -> Optional[int]:
    return stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else None


def _digest(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as handle:
            return hashlib.sha256(handle.read()).hexdigest()
    except OSError:
        return None
