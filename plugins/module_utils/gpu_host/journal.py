"""The record of a host as a journal: every change is recorded with the previous state before it is made, and its entry
stays open until the host shows the result.

An entry that is still open was interrupted: by a kill, a full disk, a command that failed. The next run finds the state
before gpusetup in the record, and can continue (`change`) or go back (`undo`).
"""

import copy
import json
import os
import stat
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from ..gpu_judge import record_form
from . import files
from .failure import HostFailure, tried

SCHEMA = "gpusetup/state/1"
State = Dict[str, Any]
_EMPTY: State = {
    "schema": SCHEMA, "apply": {}, "open": {}, "previous": {}, "files": {}, "holds": [], "free": [], "services": {},
    "packages": {}, "streams": {}, "links": {}, "alternatives": {}, "environments": {}, "folders": {}, "brought": {},
    "moved": {}, "left": {}, "made": {}, "taken": {}, "counted": "", "arguments": [], "mig": {}, "runfile": {},
    "listed": {}, "expect": {}, "waits": {}, "lock": {}, "lost": {}, "verified": None,
}  # fmt: skip
_TOLD = ("apply", "expect", "waits", "lock", "verified", "lost", "packages", "free", "listed")
"""The parts of the record about the apply itself; all else describes things on the host and goes through `change`."""


class _Unknown:
    """Stands for a state that the record does not know."""


UNKNOWN = _Unknown()


class Thing:
    """Something on a host that gpusetup changes: how to look at it, change it and record it.

    Values are plain data, since they are stored in the record.
    """

    kind = ""
    """What it is in plain words, such as `unit`."""
    section = ""
    """The part of the record with the states of this kind before gpusetup."""
    whole = False
    """Whether the whole section belongs to this one thing, or is a list shared by all things of the kind."""
    stays = False
    """Whether it keeps its present state until removal once nobody asks for it."""
    goes_back = False
    """Whether a failed apply restores it together with the files."""
    unchosen: Optional[Tuple[Any, ...]] = None
    """The states that nobody chooses; any other one that is not ours stays on removal. None: none stays."""

    def __init__(self, name: str) -> None:
        self.name = name

    def look(self) -> Any:
        """Return the present state on the host."""
        raise NotImplementedError

    def make(self, wanted: Any) -> None:
        """Change the host."""
        raise NotImplementedError

    def fits(self, now: Any, wanted: Any) -> bool:
        """Return whether nothing has to be done."""
        return bool(now == wanted)

    def came_about(self, now: Any, wanted: Any) -> bool:
        """Return whether the change took effect."""
        return self.fits(now, wanted)

    def failure(self, now: Any, wanted: Any) -> HostFailure:
        """Return the failure to raise if the change had no effect."""
        raise NotImplementedError

    def clear_up(self) -> None:
        """Delete temporary files that an interrupted call left."""

    def aim(self, wanted: Any) -> str:
        """Return the goal as the end of a sentence that begins with the thing's name."""
        return f"become {wanted}" if wanted is not None else "go"

    def first(self, state: State) -> Any:
        """Return the state before gpusetup, UNKNOWN if it is not recorded."""
        return state[self.section].get(self.name, UNKNOWN)

    def note(self, state: State, before: Any, _wanted: Any) -> None:
        """Record the state before gpusetup unless an earlier call did."""
        state[self.section].setdefault(self.name, before)

    def settle(self, state: State, wanted: Any) -> None:
        """Update the record after the change took effect."""

    def forget(self, state: State) -> None:
        """Remove it from the record: the host has its state from before gpusetup again."""
        state[self.section].pop(self.name, None)

    def back(self, _now: Any, first: Any) -> Any:
        """Return the state to restore on removal."""
        return first

    def again(self, _now: Any, before: Any, _noted: List[Any]) -> Any:
        """Return the state to restore after a failed apply, given what it found on the host and in the record."""
        return before

    def noted(self, state: State) -> List[Any]:
        """Return a copy of its recorded state in a list, empty if nothing is recorded."""
        kept = state[self.section]
        return copy.deepcopy([kept] if self.whole else [kept[self.name]] if self.name in kept else [])

    def note_again(self, state: State, noted: List[Any]) -> None:
        """Put back what `noted` returned earlier."""
        if self.whole:
            state[self.section] = noted[0]
        elif noted:
            state[self.section][self.name] = noted[0]
        else:
            self.forget(state)


class Journal:
    """The state file of one host. `check` changes nothing and only reports what would change."""

    def __init__(self, folder: str, check: bool = False, fresh: Optional[State] = None) -> None:
        self.folder = folder
        self.check = check
        self.path = os.path.join(folder, "state.json")
        self._refuse_a_strangers()
        self.state = _filled(_kept(self.path) if fresh is None else fresh)
        self._seen = files.digest(files.read_bytes(self.path) or b"")
        self._swept = False
        self.left: List[str] = []
        """What others have taken over or chosen since: it stays unchanged."""
        self.goes_back = False
        """Whether further changes belong to a rollback and are not recorded as changes of this apply for `revert`."""

    def _refuse_a_strangers(self) -> None:
        """Fail if another user can change the record: root would write what it says to any place."""
        who = os.stat(self.folder).st_uid if os.path.isdir(self.folder) else 0
        if who not in (0, os.geteuid()):
            what, hint = f"the record of this host belongs to user {who}", "if nobody has changed it: chown -R root "
            raise HostFailure("GS-499", what, self.folder, hint=hint + self.folder)

    def save(self) -> None:
        """Write the state in one step if it changed; fail if another process has changed the file meanwhile."""
        text = json.dumps(self.state, indent=1, sort_keys=True) + "\n"
        if self.check or files.digest(text) == self._seen:
            return
        self._make_folder()
        with files.locked(os.path.join(self.folder, "lock")):
            if files.digest(files.read_bytes(self.path) or b"") != self._seen:
                raise HostFailure(
                    "GS-432", "something else is changing this host: its record has just changed",
                    self.path, hint="wait until it ends, then run the same command again",
                )  # fmt: skip
            if not self._swept:
                files.sweep(self.path)
                self._swept = True
            files.write_atomically(self.path, text, 0o600)
            self._seen = files.digest(text)

    def _make_folder(self, *inside: str) -> None:
        """Create the folders. Only root lists them; everybody may pass through to `status.json`, which all may read."""
        for path in (self.folder, *(os.path.join(self.folder, name) for name in inside)):
            mode = 0o711 if path == self.folder else 0o700
            if not os.path.isdir(path):
                os.makedirs(path, mode, exist_ok=True)
            if stat.S_IMODE(os.stat(path).st_mode) != mode:
                os.chmod(path, mode)

    def tell(self, **parts: Any) -> None:
        """Record facts about the apply itself; changes of the host go through `change`."""
        unknown = sorted(set(parts) - set(_TOLD))
        if unknown:
            raise ValueError(f"not of the apply: {unknown}")
        self.state.update(parts)
        if self.state["apply"].get("finished"):  # it is never reverted
            self.state["previous"] = {}
        self.save()

    def note_timer(self, unit: str) -> None:
        """Record a timer of our own that was not there before us; its unit file defines what it should be."""
        first = {"enabled": False, "was_enabled": False, "was_active": False}
        self.state["services"].setdefault(unit, first)
        self.save()

    def forget_timer(self, unit: str) -> None:
        self.state["services"].pop(unit, None)
        self.save()

    @property
    def under_way(self) -> bool:
        """Whether an apply has begun and not finished."""
        return self.state["apply"].get("id") is not None and not self.state["apply"].get("finished")

    # the door

    def change(self, thing: Thing, wanted: Any, now: Any = UNKNOWN) -> bool:
        """Bring a thing to the wanted state; return whether that changed it. `now` is its state if the caller has just
        looked.
        """
        seen = thing.look() if now is UNKNOWN else now
        if thing.fits(seen, wanted):
            if not self.check:
                self._clear_up(thing)
                thing.note(self.state, seen, wanted)
                self._settle_thing(thing, seen, wanted)
            return False
        if self.check:
            return True
        self._clear_up(thing)
        noted, goes_on = thing.noted(self.state), self.opened(thing.kind, thing.name)
        thing.note(self.state, seen, wanted)
        try:
            made = self._do(thing, seen, wanted, noted)
        except HostFailure:
            if not goes_on and tried(thing.look) == (seen, ""):  # the host is unchanged
                thing.note_again(self.state, noted)
                self._close(thing.kind, thing.name)
            raise
        self._settle_thing(thing, made, wanted)
        return True

    def _settle_thing(self, thing: Thing, made: Any, wanted: Any) -> None:
        thing.settle(self.state, wanted)
        if thing.unchosen is not None and thing.noted(self.state):
            self.state["made"][_key(thing.kind, thing.name)] = made
        self._close(thing.kind, thing.name)

    def undo(self, thing: Thing, now: Any = UNKNOWN) -> bool:
        """Restore a thing's state from before gpusetup; return whether that changed it."""
        first = thing.first(self.state)
        if first is UNKNOWN:
            return False
        seen = thing.look() if now is UNKNOWN else now
        key = _key(thing.kind, thing.name)
        ours = self.opened(thing.kind, thing.name) or thing.unchosen is None
        if ours or seen in (self.state["made"].get(key, seen), *(thing.unchosen or ())):
            differs = self._bring(thing, seen, thing.back(seen, first))
        else:
            differs = False
            self.left.append(f"{thing.kind} {thing.name}")
        if not self.check:
            self.state["made"].pop(key, None)
            thing.forget(self.state)
            self._close(thing.kind, thing.name)
        return differs

    def revert(self, thing: Thing) -> bool:
        """Restore the state that the current apply found; return whether that changed the thing."""
        entry = next(item for item in self.to_revert() if item["thing"] == _key(thing.kind, thing.name))
        seen = thing.look()
        differs = self._bring(thing, seen, thing.again(seen, entry["before"], entry["noted"]))
        if not self.check:
            thing.note_again(self.state, entry["noted"])
            self.state["made"].pop(entry["thing"], None)
            self.state["previous"]["things"].remove(entry)
            self._close(thing.kind, thing.name)
        return differs

    def give_up(self, thing: Thing) -> bool:
        """Close an interrupted entry that nobody asks for any more; return whether that changed the thing."""
        changed = self.change(thing, thing.look()) if thing.stays else self.undo(thing)
        self._close(thing.kind, thing.name)
        return changed

    def _bring(self, thing: Thing, seen: Any, target: Any) -> bool:
        differs = not thing.fits(seen, target)
        if not self.check:
            self._clear_up(thing)
            if differs:
                self._do(thing, seen, target, thing.noted(self.state))
        return differs

    def _clear_up(self, thing: Thing) -> None:
        if self.opened(thing.kind, thing.name):
            thing.clear_up()

    def _do(self, thing: Thing, before: Any, wanted: Any, noted: List[Any]) -> Any:
        if thing.goes_back:
            self._keep_for_revert(_key(thing.kind, thing.name), before, noted)
        self._open(thing.kind, thing.name, before, wanted, thing.aim(wanted))
        thing.make(wanted)
        now = thing.look()
        if not thing.came_about(now, wanted):
            raise thing.failure(now, wanted)
        return now

    def _keep_for_revert(self, key: str, before: Any, noted: List[Any]) -> None:
        """Keep what this apply found on the host and in the record, before its first change of a thing."""
        apply = self.state["apply"]
        if not self.under_way or self.goes_back:
            return
        if self.state["previous"].get("apply") != apply["id"]:
            self.state["previous"] = {"apply": apply["id"], "things": []}
        if all(item["thing"] != key for item in self.state["previous"]["things"]):
            self.state["previous"]["things"].append({"thing": key, "before": before, "noted": noted})

    def to_revert(self) -> List[Dict[str, Any]]:
        """Return the things that the current apply changed, the last one first."""
        kept = self.state["previous"]
        return kept["things"][::-1] if self.under_way and kept.get("apply") == self.state["apply"]["id"] else []

    def _open(self, kind: str, name: str, before: Any, wanted: Any, aim: str) -> None:
        """Record, flushed to disk, what is about to be done."""
        begun = {"what": f"{kind} {name}", "aim": aim, "since": now(), "apply": self.state["apply"].get("id")}
        self.state["open"][_key(kind, name)] = dict(begun, before=before, wanted=wanted)
        self.save()

    def _close(self, kind: str, name: str) -> None:
        self.state["open"].pop(_key(kind, name), None)
        self.save()

    def begin(self, kind: str, name: str, aim: str) -> None:
        """Open an entry until `end`, for work that leaves the host as it was."""
        self._open(kind, name, None, None, aim)

    def end(self, kind: str, names: Iterable[str]) -> None:
        for name in names:
            self._close(kind, name)

    def opened(self, kind: str, name: str) -> Optional[Dict[str, Any]]:
        """Return the entry that an interrupted call left open, None without one."""
        found: Optional[Dict[str, Any]] = self.state["open"].get(_key(kind, name))
        return found


def _key(kind: str, name: str) -> str:
    return kind + ":" + name


def empty() -> State:
    """Return the record of a host that gpusetup has not changed."""
    return _filled({})


def _kept(path: str) -> State:
    """Return the recorded state, {} if there is no file; an unreadable one is a failure, not an empty record."""
    note = ""
    try:
        text = files.read_text(path)
        kept = {} if text is None else json.loads(text)
        note = record_form.wrong(kept)
    except OSError as error:
        note = error.strerror or repr(error)
    except (ValueError, RecursionError) as error:
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
    return {**kept, **state, "schema": SCHEMA}  # another version may know more parts


def now() -> str:
    """Return the current UTC time as text that sorts."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
