"""What gpusetup did to this host: files with what was there before, holds, services, packages, one record per apply.

`state.json` is the present; `history/<id>.json` the past; `originals/` keeps the content of files that were there
before us, so that `remove` can bring them back.
"""

import json
import os
import stat
import time
from typing import Any, Dict, List, Mapping, Optional

from ..gpu_judge import record_form, versions
from . import files
from .failure import HostFailure

SCHEMA = "gpusetup/state/1"
_SIGNED = (b"# Written by gpusetup", b"// Written by gpusetup")
State = Dict[str, Any]
_EMPTY: State = {
    "schema": SCHEMA,
    "apply": {},
    "files": {},
    "holds": [],
    "free": [],
    "services": {},
    "packages": {},
    "streams": {},
    "links": {},
    "brought": {},
    "moved": {},
    "taken": {},
    "arguments": [],
    "mig": {},
    "runfile": {},
    "expect": {},
    "lock": {},
    "lost": {},
    "verified": None,
}


class Ledger:
    """The state folder of one host. `check` keeps everything as it is and only tells what would change."""

    def __init__(self, folder: str, check: bool = False) -> None:
        self.folder = folder
        self.check = check
        self.path = os.path.join(folder, "state.json")
        self.state = _filled(_kept(self.path))
        self._seen = files.digest(files.read_bytes(self.path) or b"")
        self.diffs: List[Dict[str, str]] = []

    def save(self) -> None:
        """Write the state in one step."""
        if self.check:
            return
        self._make_folder()
        with files.locked(os.path.join(self.folder, "lock")):
            if files.digest(files.read_bytes(self.path) or b"") != self._seen:
                raise HostFailure(
                    "GS-452", "something else is changing this host: its record has just changed",
                    self.path, hint="wait until it ends, then run the same command again",
                )  # fmt: skip
            text = json.dumps(self.state, indent=1, sort_keys=True) + "\n"
            files.write_atomically(self.path, text, 0o600)
            self._seen = files.digest(text)

    def _make_folder(self) -> None:
        """Nobody but root lists it; everybody may pass through it to `status.json`, which is for all to read."""
        for folder, mode in (("", 0o711), ("history", 0o700), ("originals", 0o700)):
            path = os.path.join(self.folder, folder)
            if not os.path.isdir(path):
                os.makedirs(path, mode, exist_ok=True)
            os.chmod(path, mode)

    # files

    def write(self, path: str, content: files.Content, mode: int = 0o644) -> bool:
        """Make a file have this content; return whether that changed it. The first content found is kept.

        `mode` is that of a file of our own; one that was there before us keeps its mode, owner and link.
        """
        raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        before = files.read_bytes(path)
        self.adopt(path, before)
        # What holds a secret is never left open, whoever made the file.
        ours = before is not None and (self._is_ours(path) or not mode & 0o077)
        if before == raw and not (ours and _mode(path) != mode):
            if not self.check and path in self.state["files"]:
                self.state["files"][path]["sha256"] = files.digest(raw)
            return False
        self.diffs.append(_diff(path, before, raw, mode))
        if self.check:
            return True
        self._remember(path, before)
        if ours:
            os.chmod(path, mode)
        files.edit(path, raw, mode)
        self.state["files"][path].update({"sha256": files.digest(raw), "mode": _mode(path), "present": True})
        self.save()
        return True

    def _is_ours(self, path: str) -> bool:
        return path in self.state["files"] and self.state["files"][path]["original"] is None

    def adopt(self, path: str, there: Optional[bytes]) -> None:
        """A file that says it is ours is ours: the record that knew it was lost."""
        if path not in self.state["files"] and (there or b"").startswith(_SIGNED) and not self.check:
            entry = {"original": None, "sha256": files.digest(there or b""), "mode": _mode(path), "present": True}
            self.state["files"][path] = entry
            self.save()

    def delete(self, path: str) -> bool:
        """Take a file away; return whether it was there."""
        before = files.read_bytes(path)
        if before is None:
            return False
        self.diffs.append(_diff(path, before, None))
        if self.check:
            return True
        self._remember(path, before)
        os.unlink(path)
        self.state["files"][path].update({"sha256": None, "present": False})
        self.save()
        return True

    def _remember(self, path: str, before: Optional[bytes]) -> None:
        """Note what was there before our first change, and in this apply before its first change."""
        if path not in self.state["files"]:
            self.state["files"][path] = {"original": self._keep(path, before), "folders": self._missing_folders(path)}
        entry = self.state["files"][path]
        now = self.state["apply"].get("id")
        if entry.get("apply") != now:
            entry["apply"] = now
            entry["previous"] = self._keep(path, before)
        self.save()

    def _missing_folders(self, path: str) -> List[str]:
        """Return the folders above a file that would not be there without us, the innermost first."""
        made = {folder for other, entry in self.state["files"].items() for folder in _folders(other, entry)}
        found, folder = [], os.path.dirname(path)
        while folder in made or not os.path.isdir(folder):
            found.append(folder)
            folder = os.path.dirname(folder)
        return found

    def _keep(self, path: str, before: Optional[bytes]) -> Optional[Dict[str, Any]]:
        if before is None:
            return None
        name = files.digest(before)
        place = os.path.join(self.folder, "originals", name)
        if not os.path.exists(place):
            self._make_folder()
            files.write_atomically(place, before, 0o600)
        kept: Dict[str, Any] = {"sha256": name, "mode": _mode(path), "owner": _owner(path)}
        if os.path.islink(path):
            kept["link"] = os.readlink(path)
        return kept

    def restore(self, path: str, which: str = "original") -> bool:
        """Bring back what was there before ("original": before us, "previous": before this apply); return whether it
        changed.
        """
        entry = self.state["files"].get(path)
        if entry is None or which not in entry:
            return False
        kept = entry[which]
        before = files.read_bytes(path)
        wanted = self._original(path, kept) if kept is not None else None
        changed = not (before == wanted and (kept is None or _mode(path) == kept["mode"]))
        if changed:
            self.diffs.append(_diff(path, before, wanted))
        if self.check:
            return changed
        if changed and wanted is None:
            os.unlink(path)
            files.drop_compiled(path)
            for folder in _folders(path, entry):
                if os.path.isdir(folder) and not os.listdir(folder):
                    os.rmdir(folder)
        elif changed and wanted is not None:
            _put_back(path, wanted, kept)
        if (
            which == "original"
            or wanted is None
            or (entry["original"] or {}).get("sha256") == (kept or {}).get("sha256")
        ):
            del self.state["files"][path]
        else:
            entry.update({"sha256": kept["sha256"], "present": True, "mode": kept["mode"]})
            del entry["previous"]
            entry["apply"] = None
        self.save()
        return changed

    def _original(self, path: str, kept: Mapping[str, Any]) -> bytes:
        place = os.path.join(self.folder, "originals", kept["sha256"])
        raw = files.read_bytes(place)
        if raw is None:
            raise HostFailure(
                "GS-499", "the saved original of a file is gone", path, f"{place} is gone",
                "restore the file or its saved original from a backup, then run the same command again",
            )  # fmt: skip
        return raw

    def revert_apply(self) -> List[str]:
        """Bring back every file that the apply now under way has changed; return their paths."""
        now = self.state["apply"].get("id")
        if now is None or self.state["apply"].get("finished"):
            return []
        paths = [
            path for path, entry in self.state["files"].items() if entry.get("apply") == now and "previous" in entry
        ]
        return [path for path in sorted(paths, reverse=True) if self.restore(path, "previous")]

    def forget_apply(self) -> None:
        """The apply under way failed and everything is back: the host stands on the last finished one again, if there
        is one.
        """
        if not self.state["apply"].get("finished") and self.state["apply"].get("last"):
            self.state["apply"] = self.state["apply"]["last"]
            self.save()

    # links, packages

    def link(self, path: str, target: Optional[str]) -> bool:
        """Make a symbolic link name this target (None: bring back what was there); return whether that changed it."""
        before = os.readlink(path) if os.path.islink(path) else None
        if target is None:
            if path not in self.state["links"]:
                return False
            target = self.state["links"][path]
        elif before is None and os.path.lexists(path):
            raise HostFailure(
                "GS-480",
                f"{path} is in the way: it is not a symbolic link",
                hint="move it away and run the command again",
            )
        if before == target:
            return False
        if self.check:
            return True
        if target == self.state["links"].setdefault(path, before):
            del self.state["links"][path]
        if target is None:
            os.unlink(path)
        else:
            files.link_atomically(path, target)
        self.save()
        return True

    def record_packages(self, change: Mapping[str, Mapping[str, Any]]) -> None:
        """Remember what the transactions brought, moved and took away, so that `remove` can undo it."""
        state = self.state
        for name, version in change["installed"].items():
            if state["taken"].get(name) == version:
                del state["taken"][name]
            elif name in state["taken"]:
                state["moved"][name] = state["taken"].pop(name)
            else:
                state["brought"][name] = version
        for name, (old, new) in change["moved"].items():
            if name in state["brought"]:
                state["brought"][name] = new
            elif state["moved"].setdefault(name, old) == new:
                del state["moved"][name]
        brought = dict(state["brought"])
        for name, version in change["removed"].items():
            ours = versions.recorded_as(brought, name, version)
            if ours is not None:
                state["brought"].pop(ours, None)
            else:
                state["taken"][name] = state["moved"].pop(name, version)
        self.save()

    # history

    def write_history(self, record: Mapping[str, Any], keep: int) -> None:
        """Add one apply to the history and drop the oldest beyond `keep`: by when each was written, not by what a clock
        said.
        """
        if self.check:
            return
        folder = os.path.join(self.folder, "history")
        self._make_folder()
        past = self.history()
        counted = dict(record, number=1 + max([_number(item) for item in past], default=0))
        files.write_json(os.path.join(folder, record["id"] + ".json"), counted)
        others = [item for item in past if item["id"] != record["id"]]
        for old in others[: len(others) + 1 - max(1, keep)]:
            os.unlink(os.path.join(folder, old["id"] + ".json"))

    def history(self) -> List[State]:
        """Return the records of past applies, oldest first."""
        return history(self.folder)


def history(state_folder: str) -> List[State]:
    """Return the records of past applies, oldest first, also beside a record that is lost."""
    folder = os.path.join(state_folder, "history")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    records = [files.read_json(os.path.join(folder, name)) for name in names if name.endswith(".json")]
    return sorted((record for record in records if isinstance(record, dict)), key=_number)


def empty() -> State:
    """Return the record of a host that nothing was done to."""
    return _filled({})


def _kept(path: str) -> State:
    """Return the recorded state, empty where there is none; one that cannot be read is no empty one."""
    note = ""
    try:
        text = files.read_text(path)
        kept = {} if text is None else json.loads(text)
        note = record_form.wrong(kept)
    except OSError as error:
        note = error.strerror or repr(error)
    except ValueError as error:
        note = f"it is not valid JSON: {error}"
    if note:
        raise HostFailure(
            "GS-499", "the record of what gpusetup did to this host cannot be read", path, note,
            "restore it from a backup; without one, `gpusetup apply` sets it aside and starts a new one",
        )  # fmt: skip
    return kept


def _filled(kept: Mapping[str, Any]) -> State:
    state = {
        key: kept.get(key, type(value)() if isinstance(value, (dict, list)) else value) for key, value in _EMPTY.items()
    }
    return dict(state, schema=SCHEMA)


def _number(record: Mapping[str, Any]) -> int:
    """Return which apply it was; records of earlier versions have no number and are older than all that have."""
    return int(record.get("number") or 0)


def now() -> str:
    """Return the time as text that sorts."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def _put_back(path: str, raw: bytes, kept: Mapping[str, Any]) -> None:
    owner = kept.get("owner")
    if kept.get("link") and not os.path.lexists(path):
        files.link_atomically(path, kept["link"])
    files.edit(path, raw, kept["mode"], (owner[0], owner[1]) if owner else None)
    os.chmod(path, kept["mode"])


def _folders(path: str, entry: Mapping[str, Any]) -> List[str]:
    """Return the folders that were made for a file; earlier versions noted only whether its own was."""
    known: List[str] = entry.get("folders") or ([os.path.dirname(path)] if entry.get("folder") else [])
    return known


def _mode(path: str) -> Optional[int]:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return None


def _owner(path: str) -> List[int]:
    seen = os.stat(path)
    return [seen.st_uid, seen.st_gid]


def _diff(path: str, before: Optional[bytes], after: Optional[bytes], mode: int = 0o644) -> Dict[str, str]:
    there = _mode(path)
    secret = not (mode if there is None else there & mode) & 0o004  # a diff goes into logs
    return {
        "before_header": path,
        "after_header": path,
        "before": _shown(before, secret),
        "after": _shown(after, secret),
    }


def _shown(raw: Optional[bytes], secret: bool) -> str:
    if raw is None:
        return ""
    if secret:
        return f"(not for everybody to read, {len(raw)} bytes, SHA-256 {files.digest(raw)})\n"
    return raw.decode("utf-8", "replace") if b"\0" not in raw else f"(binary, {len(raw)} bytes)\n"
