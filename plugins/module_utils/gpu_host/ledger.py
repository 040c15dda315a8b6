"""The record of what gpusetup did to this host: files with their previous content, holds, services, packages, applies.

`state.json` is the present; `history/<id>.json` the past; `originals/` holds earlier contents of files, so that
`remove` can restore them.
"""

import base64
import os
import stat
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from ..gpu_judge import versions
from . import files
from .alternatives import Link
from .failure import HostFailure, tried
from .journal import UNKNOWN, Journal, State

_SIGNED = (b"# Written by gpusetup", b"// Written by gpusetup")
FILE = "file"
_KEPT = ("original", "previous")


class Ledger(Journal):
    """The state folder of one host, including the files that were there before us."""

    def __init__(self, folder: str, check: bool = False, fresh: Optional[State] = None) -> None:
        super().__init__(folder, check, fresh)
        self.diffs: List[Dict[str, str]] = []
        self.saved: Dict[str, str] = {}
        """Files that somebody else edited since, each with the path of its copy."""

    # files

    def write(self, path: str, content: files.Content, mode: int = 0o644, owner: Optional[files.Owner] = None) -> bool:
        """Write a file; return whether that changed it. Its first content is kept.

        `mode` and `owner` apply to a file of our own; one that was there before us keeps its mode, owner and link.
        """
        raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        before = self._there(path)
        self.adopt(path, before)
        # A file with a secret is always closed to others, whoever created it.
        ours = before is not None and (self._is_ours(path) or not mode & 0o077)
        linked = self._is_linked_since(path)
        if before == raw and not linked and not (ours and _mode(path) != mode) and not self._other_owner(path, owner):
            self._settle(path, raw)
            return False
        files.refuse_mounted(path)
        self.diffs.append(_diff(path, before, raw, mode))
        if self.check:
            return True
        self._remember(path, before)
        self._keep_text(raw)
        self._open(FILE, path, _digest(before), files.digest(raw), "be written")
        if linked:
            files.write_atomically(path, raw, mode)  # the file that the link leads to stays
        else:
            if ours:
                os.chmod(path, mode)
            files.edit(path, raw, mode, owner)
        if self._other_owner(path, owner) and owner is not None:
            os.chown(path, owner[0], owner[1])
        self._settle_file(path, raw)
        return True

    def arrange(self, wanted: Mapping[str, Any], ours: Callable[[str], bool] = lambda _path: False) -> List[str]:
        """Write files, given as content or (content, mode), and restore those that are not wanted: the ones without a
        content and all other recorded ones that are `ours`; return the paths that changed.
        """
        asked = {
            path: text if isinstance(text, tuple) else (text,) for path, text in wanted.items() if text is not None
        }
        going = {path for path in self.state["files"] if path not in asked and (path in wanted or ours(path))}
        gone = [path for path in sorted(going, reverse=True) if self.restore(path)]
        return gone + [path for path in sorted(asked) if self.write(path, *asked[path])]

    def mend_by(self, path: str, hint: str) -> None:
        """Record the command that repairs this file, if no apply writes it."""
        if path in self.state["files"]:
            self.state["files"][path]["hint"] = hint
            self.save()

    def _other_owner(self, path: str, owner: Optional[files.Owner]) -> bool:
        return owner is not None and os.path.exists(path) and tuple(_owner(path)) != owner

    def _settle(self, path: str, raw: bytes) -> None:
        """Record that a file has its wanted content, which removal compares with."""
        entry = self.state["files"].get(path)
        if self.check or entry is None:
            return
        self._mark_edited(path, raw)
        if self.opened(FILE, path):
            files.sweep(path)
        self._keep_text(raw)
        self._settle_file(path, raw)

    def _settle_file(self, path: str, raw: Optional[bytes]) -> None:
        """Record the content that a file now has, None if it is gone."""
        self.state["files"][path].update({"sha256": _digest(raw), "mode": _mode(path), "present": raw is not None})
        self._close(FILE, path)

    def close_file(self, path: str) -> None:
        """Close an interrupted entry of a file, which has either its old or its new content."""
        begun, entry, there = self.opened(FILE, path), self.state["files"].get(path), files.read_bytes(path)
        if self.check or begun is None:
            return
        files.sweep(path)
        if entry is not None and "sha256" not in entry and _digest(there) == begun["before"]:
            self._drop_folders(path, entry)
            self._forget_file(path)
            return
        if entry is not None and _digest(there) == begun["wanted"]:
            entry.update({"sha256": begun["wanted"], "mode": _mode(path), "present": there is not None})
        self._close(FILE, path)

    def _mark_edited(self, path: str, there: Optional[bytes]) -> None:
        """Note that somebody else edited a file of theirs after we wrote into it, so that its first content is out of
        date; clear the note if they went back to that content.
        """
        self._note_mode(path)
        entry = self.state["files"][path]
        if entry.get("original") is None or there is None or self._is_as_left(path, there):
            return
        if not entry.get("present", True):
            entry["original"] = self._keep(path, there)  # we had deleted it, so all of this is theirs
        elif _digest(there) == entry["original"]["sha256"]:
            entry.pop("edited", None)
        else:
            entry["edited"] = True

    def _note_mode(self, path: str) -> None:
        """Keep the mode that others have given to a file of theirs after us."""
        entry, now = self.state["files"][path], _mode(path)
        if entry["original"] and now not in (None, entry.get("mode", now)) and not self.opened(FILE, path):
            entry["original"]["mode"] = now

    def _is_ours(self, path: str) -> bool:
        return path in self.state["files"] and self.state["files"][path]["original"] is None

    def _is_linked_since(self, path: str) -> bool:
        """Return whether somebody has put a symbolic link, or another one, in the place of our own file."""
        ours = self._is_ours(path) and os.path.islink(path)
        return ours and os.readlink(path) != self.state["files"][path].get("link")

    def _there(self, path: str) -> Optional[bytes]:
        """Return a file's content, None if it is missing; fail for what is not a file, such as a link to /dev/null: a
        write would replace the device. Such a link in the place of our own file counts as empty.
        """
        if os.path.isfile(path) or not os.path.exists(path):
            return files.read_bytes(path)
        if self._is_linked_since(path):
            return b""
        raise HostFailure(
            "GS-480", f"{path} blocks it: it is not a file", os.path.realpath(path),
            hint=f"mv {path} /root/, then run the same command again",
        )  # fmt: skip

    def adopt(self, path: str, there: Optional[bytes]) -> None:
        """Count a file as ours if its first line says so, after the record was lost; the caller saves."""
        if path not in self.state["files"] and (there or b"").startswith(_SIGNED) and not self.check:
            entry = {"original": None, "sha256": files.digest(there or b""), "mode": _mode(path), "present": True}
            self.state["files"][path] = entry

    def delete(self, path: str) -> bool:
        before = files.read_bytes(path)
        if before is None:
            if self.opened(FILE, path):
                files.sweep(path)
                self._settle_file(path, None)
            return False
        self.diffs.append(_diff(path, before, None))
        if self.check:
            return True
        self._remember(path, before)
        self._open(FILE, path, _digest(before), None, "go")
        os.unlink(path)
        self._settle_file(path, None)
        return True

    def _remember(self, path: str, before: Optional[bytes]) -> None:
        """Keep the content before our first change, and before the first change of this apply."""
        if path not in self.state["files"]:
            self.state["files"][path] = {
                "original": self._keep(path, before),
                "folders": files.folders_of_ours(path, self.state),
            }
            if before is None and os.path.islink(path):
                self.state["files"][path]["link"] = os.readlink(path)
        elif self.opened(FILE, path):
            files.sweep(path)
        else:
            self._mark_edited(path, before)
        entry = self.state["files"][path]
        now = self.state["apply"].get("id")
        if entry.get("apply") != now or "previous" not in entry:
            entry["apply"] = now
            entry["previous"] = self._keep(path, before)

    def _keep(self, path: str, before: Optional[bytes]) -> Optional[Dict[str, Any]]:
        if before is None:
            return None
        kept: Dict[str, Any] = {"sha256": self._keep_text(before), "mode": _mode(path), "owner": _owner(path)}
        attributes = files.attributes(path)
        if attributes:
            kept["attributes"] = {name: base64.b64encode(raw).decode() for name, raw in attributes.items()}
        if os.path.islink(path):
            kept["link"] = os.readlink(path)
        return kept

    def _keep_text(self, raw: bytes) -> str:
        """Store a content once; return its name."""
        name = files.digest(raw)
        place = os.path.join(self.folder, "originals", name)
        if not os.path.exists(place):
            self._make_folder("originals")
            files.write_atomically(place, raw, 0o600)
        return name

    def _is_as_left(self, path: str, there: Optional[bytes]) -> bool:
        """Return whether a file is as we left it, or has either content of an interrupted write."""
        entry, begun = self.state["files"][path], self.opened(FILE, path)
        left = {entry.get("sha256") if entry.get("present", True) else None} if "sha256" in entry else set()
        if begun is not None:
            left |= {begun["before"], begun["wanted"]}
        return _digest(there) in left

    def restore(self, path: str, which: str = "original") -> bool:
        """Restore a file from before us ("original") or before this apply ("previous"); return whether that changed it.

        Edits of others are not lost: a file without anything of ours stays unchanged; any other edited file is copied
        first, and `saved` has the path of the copy.
        """
        entry = self.state["files"].get(path)
        if entry is None or which not in entry:
            return False
        files.refuse_mounted(path)
        self._note_mode(path)
        kept = entry[which]
        if os.path.isdir(path):
            self.leave(path)
            return False
        before = self._there(path)
        wanted = self._original(path, kept) if kept is not None else None
        changed = not (before == wanted and (kept is None or before is None or _mode(path) == kept["mode"]))
        theirs = changed and before != wanted and (entry.get("edited") or not self._is_as_left(path, before))
        if theirs and (before is None or not files.has_ours(before, self._text_of(entry), wanted or b"")):
            self.left.append(path)
            self._forget_file(path)
            return False
        if changed:
            self.diffs.append(_diff(path, before, wanted))
        if self.check:
            return changed
        if self.opened(FILE, path):
            files.sweep(path)
        linked = self._is_linked_since(path)
        if theirs and before is not None:  # before the entry: after an interruption its content counts as ours
            self.saved[path] = os.path.realpath(path) if linked else files.put_aside(path, before)
        if changed:
            self._open(FILE, path, _digest(before), _digest(wanted), "go" if wanted is None else "be as it was")
        if changed and wanted is None:
            os.unlink(path if linked else os.path.realpath(path))  # a link from before us stays
        elif changed and wanted is not None:
            files.put_back(path, wanted, kept)
        if wanted is None:
            self._drop_folders(path, entry)
        first = (entry["original"] or {}).get("sha256") == (kept or {}).get("sha256")
        if which == "original" or wanted is None or first:
            self._forget_file(path)
        else:
            entry.update({"sha256": kept["sha256"], "present": True, "mode": kept["mode"], "apply": None})
            del entry["previous"]
            self._close(FILE, path)
        return changed

    def give_up_file(self, path: str) -> bool:
        """Delete a file that was not there before us, so that a failed apply can restore it; restore any other file."""
        entry = self.state["files"].get(path)
        if self.under_way and entry and entry["original"] is None and self._is_as_left(path, files.read_bytes(path)):
            return self.delete(path)
        return self.restore(path)

    def leave(self, path: str) -> None:
        """Forget a file that others have taken over; it stays unchanged."""
        self.left.append(path)
        self._forget_file(path)

    def _forget_file(self, path: str) -> None:
        if not self.check:
            del self.state["files"][path]
            self._close(FILE, path)

    def _drop_folders(self, path: str, entry: Mapping[str, Any]) -> None:
        files.drop_compiled(path)
        files.drop_folders(entry.get("folders", ()))

    def _text_of(self, entry: Mapping[str, Any]) -> Optional[bytes]:
        """Return what we wrote last: empty if we deleted the file, None if the content was not kept."""
        if "sha256" in entry and not entry.get("present", True):
            return b""
        return files.read_bytes(os.path.join(self.folder, "originals", str(entry.get("sha256"))))

    def _original(self, path: str, kept: Mapping[str, Any]) -> bytes:
        place = os.path.join(self.folder, "originals", kept["sha256"])
        raw = files.read_bytes(place)
        if raw is None or files.digest(raw) != kept["sha256"]:
            hint = "restore the file or its saved original from a backup, then run the same command again"
            raise HostFailure("GS-499", "the saved original of a file is missing or damaged", path, place, hint)
        return raw

    def before_apply(self) -> Dict[str, Optional[bytes]]:
        """Return {path: previous content} of the files that the current apply has changed."""
        kept = self._kept_for_revert()
        return {path: None if was is None else self._original(path, was) for path, was in kept.items()}

    def _kept_for_revert(self) -> Dict[str, Any]:
        if not self.under_way:
            return {}
        now = self.state["apply"]["id"]
        changed = {path: entry for path, entry in self.state["files"].items() if entry.get("apply") == now}
        return {path: entry["previous"] for path, entry in changed.items() if "previous" in entry}

    def revert_apply(self, which: Callable[[str], bool] = bool) -> Tuple[List[str], List[str]]:
        """Restore the selected files that the current apply has changed; return their paths, and why others failed."""
        return self.restore_all([path for path in self._kept_for_revert() if which(path)], "previous")

    def restore_all(self, paths: Iterable[str], which: str = "original") -> Tuple[List[str], List[str]]:
        """Restore files as far as possible; return those that changed, and why others failed, which stay on record."""
        done = [(path, *tried(self.restore, path, which)) for path in sorted(paths, reverse=True)]
        failed = [why if path in why else f"{path}: {why}" for path, _restored, why in done if why]
        return [path for path, restored, _why in done if restored], failed

    def forget_previous(self) -> None:
        """After a finished apply, which is never reverted: delete contents that nothing can go back to, as they may
        hold passwords, and entries of files that exist neither before us nor now.
        """
        if self.check:
            return
        for path, entry in list(self.state["files"].items()):
            if self.opened(FILE, path):
                continue
            entry.pop("previous", None)
            if entry["original"] is None and not entry.get("present", True):
                self._drop_folders(path, entry)
                self._forget_file(path)
        self.save()
        folder = os.path.join(self.folder, "originals")
        kept = [part for entry in self.state["files"].values() for part in (*map(entry.get, _KEPT), entry) if part]
        used = {part.get("sha256") for part in kept}
        for name in sorted(set(os.listdir(folder)) - used) if os.path.isdir(folder) else ():
            os.unlink(os.path.join(folder, name))

    def hand_on(self, identity: str) -> None:
        """Let the next apply, `identity`, revert to what this one found, which was cut before it changed a package."""
        if not self.under_way:
            return
        found = [entry for entry in self.state["files"].values() if "previous" in entry]
        for entry in (*found, self.state["previous"]):
            if entry.get("apply") == self.state["apply"]["id"]:
                entry["apply"] = identity

    def forget_apply(self) -> None:
        """Make the last finished apply, if any, the current one again: this one failed and everything was restored."""
        if not self.state["apply"].get("finished") and self.state["apply"].get("last"):
            self.tell(apply=self.state["apply"]["last"])

    # links, packages

    def link(self, path: str, target: Optional[str]) -> bool:
        """Make a symbolic link point to a target (None: restore what was there); return whether that changed it."""
        thing = Link(path)
        first = thing.first(self.state)
        if target is None:
            return self.undo(thing)
        if not os.path.islink(path) and os.path.lexists(path):
            what = f"{path} blocks it: it is not a symbolic link"
            raise HostFailure("GS-480", what, hint="move it away and run the command again")
        if thing.look() == target and first is UNKNOWN:
            return False
        changed = self.change(thing, target)
        return (first == target and self.undo(thing)) or changed

    def make_folder(self, path: str) -> None:
        """Make a folder for others' files, with those above it; removal deletes the new ones that are empty."""
        self.state["folders"].setdefault(path, files.folders_of_ours(os.path.join(path, "file"), self.state))
        self.save()
        os.makedirs(path, 0o755, exist_ok=True)

    def drop_folder(self, path: str) -> None:
        files.drop_folders(self.state["folders"].pop(path, ()))
        self.save()

    def record_packages(self, change: Mapping[str, Mapping[str, Any]], counted: str = "") -> None:
        """Record what transactions installed, moved and removed; `counted` names one so that it counts only once."""
        if counted and counted == self.state["counted"]:
            self.save()
            return
        state = self.state
        for name, version in change["installed"].items():
            if state["taken"].get(name) == version:
                del state["taken"][name]
            elif name in state["taken"]:
                state["moved"][name], state["left"][name] = state["taken"].pop(name), version
            else:
                state["brought"][name] = version
        for name, (old, new) in change["moved"].items():
            if name in state["brought"]:
                state["brought"][name] = new
            elif state["moved"].setdefault(name, old) == new:
                del state["moved"][name]
            else:
                state["left"][name] = new
        brought = dict(state["brought"])
        for name, version in change["removed"].items():
            ours = versions.recorded_as(brought, name, version)
            if ours is not None:
                state["brought"].pop(ours, None)
            else:
                state["taken"][name] = state["moved"].pop(name, version)
        state["counted"] = counted
        self.save()

    def leave_packages(self, installed: Dict[str, str]) -> None:
        """Forget the packages that others have moved, removed or installed again since: they stay as they are."""
        state = self.state
        others = {name for name, version in state["left"].items() if installed.get(name) != version}
        state["moved"] = {name: old for name, old in state["moved"].items() if name not in others}
        state["left"] = {name: version for name, version in state["left"].items() if name in state["moved"]}
        state["taken"] = {name: old for name, old in state["taken"].items() if name not in installed}
        state["brought"] = {key: was for key, was in state["brought"].items() if versions.places(installed, key, was)}
        self.save()

    # history

    def write_history(self, record: Mapping[str, Any], keep: int) -> None:
        """Add an apply to the history and delete the oldest beyond `keep`, in the order of writing, not the clock."""
        if self.check:
            return
        folder = os.path.join(self.folder, "history")
        self._make_folder("history")
        past = history(self.folder)
        counted = dict(record, number=1 + max([_number(item) for item in past], default=0))
        files.write_json(os.path.join(folder, record["id"] + ".json"), counted)
        others = [item for item in past if item["id"] != record["id"]]
        for old in others[: len(others) + 1 - max(1, keep)]:
            os.unlink(os.path.join(folder, old["id"] + ".json"))


def history(state_folder: str) -> List[State]:
    """Return the records of past applies, oldest first, even if the state file is lost."""
    folder = os.path.join(state_folder, "history")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    records = [(name, files.read_json(os.path.join(folder, name))) for name in names if name.endswith(".json")]
    own = (there for name, there in records if isinstance(there, dict) and name == "{}.json".format(there.get("id")))
    return sorted(own, key=_number)


def _number(record: Mapping[str, Any]) -> int:
    return int(record.get("number") or 0)


def _digest(raw: Optional[bytes]) -> Optional[str]:
    return None if raw is None else files.digest(raw)


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
    secret = not (mode if there is None else there & mode) & 0o004  # diffs are logged
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
