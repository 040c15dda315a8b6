"""What an earlier run of gpusetup recorded on this host, and what became of the files that it wrote."""

import hashlib
import json

STATE_FILE = "/var/lib/gpusetup/state.json"


def read(host):
    """Return the recorded state with the digest that each recorded file has now ("now"), None when nothing was recorded."""
    text = host.read(STATE_FILE, "state")
    if not text:
        return None
    try:
        state = json.loads(text)
    except ValueError as error:
        host.note("state", f"{STATE_FILE} is no JSON: {error}")
        return None
    if not isinstance(state, dict):
        return None
    files = state.get("files")
    if isinstance(files, dict):
        # An observation: a capture keeps the digests, not what is in the files.
        now = host.observe("recorded-files", lambda: {path: _digest(host.inside(path)) for path in files}) or {}
        for path, entry in files.items():
            if isinstance(entry, dict) and path in now:
                entry["now"] = now[path]
    return state


def names(state):
    """Return the packages that the record speaks of, whatever they are called."""
    state = state or {}
    return {name for key in ("packages", "holds", "brought") for name in (state.get(key) or ())}


def units(state):
    """Return the units that the record speaks of."""
    found = (state or {}).get("services")
    return sorted(found) if isinstance(found, dict) else []


def _digest(path):
    try:
        with open(path, "rb") as handle:
            return hashlib.sha256(handle.read()).hexdigest()
    except OSError:
        return None
