"""What an earlier run of gpusetup recorded on this host, and what became of the files that it wrote."""

import hashlib
import json
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
"""What only an apply writes, and removal takes away with its record."""


def read(host: LiveHost, path: str = STATE_FILE) -> Optional[Dict[str, Any]]:
    """Return the recorded state with what each recorded file and the Python environment are now, None when nothing was
    recorded.
    """
    text = host.read(path, "state")
    if text is None:
        reason = lost(host)
        if reason:
            host.note("state", reason)
        return None
    try:
        state = json.loads(text)
    except ValueError as error:
        host.note("state", f"{path} is not valid JSON: {error}")
        return None
    if not isinstance(state, dict):
        host.note("state", f"{path} is JSON with an unexpected structure")
        return None
    files = state.get("files")
    if isinstance(files, dict):
        # An observation: a capture keeps the digests, not what is in the files.
        now = host.observe("recorded-files", lambda: {name: _digest(host.inside(name)) for name in files}) or {}
        for name, entry in files.items():
            if isinstance(entry, dict) and name in now:
                entry["now"] = now[name]
    expect = state.get("expect")
    python = expect.get("python") if isinstance(expect, dict) else None
    if isinstance(python, dict) and python.get("path"):
        _look(host, "recorded-python", python)
    named = expect.get("environments") if isinstance(expect, dict) else None
    entries = [item for item in named if isinstance(item, dict) and item.get("path")] if isinstance(named, list) else []
    for entry in entries:
        _look(host, "recorded-python:" + str(entry["path"]), entry)
    return state


def _look(host: LiveHost, name: str, entry: Dict[str, Any]) -> None:
    """Say of an environment on record what is wrong with it now."""
    seen = host.observe(name, lambda: {"problem": environment.problem(entry)})
    if seen is not None:
        entry["now"] = seen["problem"]


def applied(path: str = STATE_FILE) -> Dict[str, Any]:
    """Return what the last apply wanted of this machine, as its lock has it; empty where nothing is on record."""
    try:
        with open(path) as stream:
            lock = json.load(stream).get("lock") or {}
    except (OSError, ValueError, AttributeError):
        return {}
    return dict(lock.get("wanted") or {})


def lost(host: LiveHost) -> str:
    """Say that this host has files of an apply and no record of one; nothing on a host that was never changed."""
    there = [path for path in MARKS if host.exists(path)]
    return f"gpusetup has no record of this host, but these files are its own: {', '.join(there)}" if there else ""


def names(state: Optional[Dict[str, Any]]) -> Set[str]:
    """Return the packages that the record speaks of, whatever they are called."""
    state = state or {}
    return {name for key in ("packages", "holds", "brought") for name in (state.get(key) or ())}


def units(state: Any) -> List[Any]:
    """Return the units that the record speaks of."""
    found = (state or {}).get("services")
    return sorted(found) if isinstance(found, dict) else []


def _digest(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as handle:
            return hashlib.sha256(handle.read()).hexdigest()
    except OSError:
        return None
