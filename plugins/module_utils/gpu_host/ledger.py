"""What gpusetup did to this host: files with what was there before, holds, services, packages, one record per apply.

`state.json` is the present; `history/<id>.json` the past; `originals/` keeps the content of files that were there before us,
so that `remove` can bring them back.
"""

import os
import stat
import time

from . import files
from .failure import HostFailure

SCHEMA = "gpusetup/state/1"
_EMPTY = {
    "schema": SCHEMA,
    "apply": {},
    "files": {},
    "holds": [],
    "services": {},
    "packages": {},
    "streams": {},
    "links": {},
    "brought": {},
    "moved": {},
    "taken": {},
    "arguments": [],
    "expect": {},
    "lock": {},
    "verified": None,
}


class Ledger:
    """The state folder of one host. `check` keeps everything as it is and only tells what would change."""

    def __init__(self, folder, check=False):
        self.folder = folder
        self.check = check
        self.path = os.path.join(folder, "state.json")
        kept = files.read_json(self.path) or {}
        self.state = {
            key: kept.get(key, type(value)() if isinstance(value, (dict, list)) else value)
            for key, value in _EMPTY.items()
        }
        self.state["schema"] = SCHEMA
        self.diffs = []

    def save(self):
        """Write the state in one step."""
        if self.check:
            return
        self._make_folder()
        files.write_json(self.path, self.state)

    def _make_folder(self):
        """Nobody but root lists it; everybody may pass through it to `status.json`, which is for all to read."""
        for folder, mode in (("", 0o711), ("history", 0o700), ("originals", 0o700)):
            path = os.path.join(self.folder, folder)
            if not os.path.isdir(path):
                os.makedirs(path, mode)
            os.chmod(path, mode)

    # files

    def write(self, path, content, mode=0o644):
        """Make a file have this content; return whether that changed it. The first content found is kept."""
        raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        before = files.read_bytes(path)
        if before == raw and _mode(path) == mode:
            if not self.check and path in self.state["files"]:
                self.state["files"][path]["sha256"] = files.digest(raw)
            return False
        self.diffs.append(_diff(path, before, raw))
        if self.check:
            return True
        self._remember(path, before)
        files.write_atomically(path, raw, mode)
        self.state["files"][path].update({"sha256": files.digest(raw), "mode": mode, "present": True})
        self.save()
        return True

    def delete(self, path):
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

    def _remember(self, path, before):
        """Note what was there before our first change, and in this apply before its first change."""
        entry = self.state["files"].setdefault(path, {"original": self._keep(path, before)})
        if not os.path.isdir(os.path.dirname(path)):
            entry["folder"] = True  # ours too
        now = self.state["apply"].get("id")
        if entry.get("apply") != now:
            entry["apply"] = now
            entry["previous"] = self._keep(path, before)
        self.save()

    def _keep(self, path, before):
        if before is None:
            return None
        name = files.digest(before)
        place = os.path.join(self.folder, "originals", name)
        if not os.path.exists(place):
            self._make_folder()
            files.write_atomically(place, before, 0o600)
        return {"sha256": name, "mode": _mode(path)}

    def restore(self, path, which="original"):
        """Bring back what was there before ("original": before us, "previous": before this apply); return whether it changed."""
        entry = self.state["files"].get(path)
        if entry is None or which not in entry:
            return False
        kept = entry[which]
        before = files.read_bytes(path)
        wanted = None
        if kept is not None:
            wanted = files.read_bytes(os.path.join(self.folder, "originals", kept["sha256"]))
        if before == wanted and (wanted is None or _mode(path) == kept["mode"]):
            changed = False
        else:
            changed = True
            self.diffs.append(_diff(path, before, wanted))
        if self.check:
            return changed
        if changed and wanted is None:
            os.unlink(path)
            _drop_if_empty(os.path.dirname(path), made=entry.get("folder"))
        elif changed:
            files.write_atomically(path, wanted, kept["mode"])
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

    def revert_apply(self):
        """Bring back every file that the apply now under way has changed; return their paths."""
        now = self.state["apply"].get("id")
        if now is None or self.state["apply"].get("finished"):
            return []
        paths = [
            path for path, entry in self.state["files"].items() if entry.get("apply") == now and "previous" in entry
        ]
        return [path for path in sorted(paths, reverse=True) if self.restore(path, "previous")]

    def forget_apply(self):
        """The apply under way failed and everything is back: the host stands on the last finished one again, if there is one."""
        if not self.state["apply"].get("finished") and self.state["apply"].get("last"):
            self.state["apply"] = self.state["apply"]["last"]
            self.save()

    def changed_files(self):
        """Return the files that are no longer as we left them, with what became of them."""
        found = {}
        for path, entry in sorted(self.state["files"].items()):
            raw = files.read_bytes(path)
            if raw is None and entry.get("present", True):
                found[path] = "missing"
            elif raw is not None and not entry.get("present", True):
                found[path] = "there again"
            elif raw is not None and files.digest(raw) != entry.get("sha256"):
                found[path] = "changed"
        return found

    # links, services, packages

    def link(self, path, target):
        """Make a symbolic link name this target (None: bring back what was there); return whether that changed it."""
        before = os.readlink(path) if os.path.islink(path) else None
        if target is None:
            if path not in self.state["links"]:
                return False
            target = self.state["links"][path]
        elif before is None and os.path.lexists(path):
            raise HostFailure("GS-480", f"{path} is in the way: it is no symbolic link", hint="move it away and repeat")
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

    def record_packages(self, change):
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
        for name, version in change["removed"].items():
            if state["brought"].pop(name, None) is None:
                state["taken"][name] = state["moved"].pop(name, version)
        self.save()

    # history

    def write_history(self, record, keep):
        """Add one apply to the history and drop the oldest beyond `keep`."""
        if self.check:
            return
        folder = os.path.join(self.folder, "history")
        self._make_folder()
        files.write_json(os.path.join(folder, record["id"] + ".json"), record)
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        for name in names[: -max(1, keep)]:
            os.unlink(os.path.join(folder, name))

    def history(self):
        """Return the records of past applies, oldest first."""
        folder = os.path.join(self.folder, "history")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        records = [files.read_json(os.path.join(folder, name)) for name in names if name.endswith(".json")]
        return [record for record in records if record]


def now():
    """Return the time as text that sorts."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def _drop_if_empty(folder, made):
    """Take a folder away that was made for a file of ours, once nothing is in it any more."""
    if made and os.path.isdir(folder) and not os.listdir(folder):
        os.rmdir(folder)


def _mode(path):
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def _diff(path, before, after):
    def text(raw):
        return (
            ""
            if raw is None
            else raw.decode("utf-8", "replace")
            if b"\0" not in raw
            else f"(binary, {len(raw)} bytes)\n"
        )

    return {"before_header": path, "after_header": path, "before": text(before), "after": text(after)}
