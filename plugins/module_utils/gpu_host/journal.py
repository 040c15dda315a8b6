"""The record of a host as a journal: what is about to change stands in it, with what was there before, until a look at
the host says that it came about.

An entry that is open was cut: by a kill, a full disk, a command that failed. Whoever comes next finds in the record
what was there before gpusetup, and can go on (`change`) or go back (`undo`).
"""

import copy
import json
import os
import stat
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ..gpu_judge import record_form
from . import files
from .failure import HostFailure

SCHEMA = "gpusetup/state/1"
State = Dict[str, Any]
_EMPTY: State = {
    "schema": SCHEMA,
    "apply": {},
    "open": {},
    "previous": {},
    "files": {},
    "holds": [],
    "free": [],
    "services": {},
    "packages": {},
    "streams": {},
    "links": {},
    "alternatives": {},
    "environments": {},
    "brought": {},
    "moved": {},
    "taken": {},
    "counted": "",
    "arguments": [],
    "mig": {},
    "runfile": {},
    "listed": {},
    "expect": {},
    "waits": {},
    "lock": {},
    "lost": {},
    "verified": None,
}
_TOLD = ("apply", "expect", "waits", "lock", "verified", "lost", "packages", "free", "listed")
"""What the record tells of the apply itself; everything else is a thing on the host and has its entry by `change`."""


class _Unknown:
    """Stands for what the record does not know."""


UNKNOWN = _Unknown()


class Thing:
    """Something on a host that gpusetup changes: how it is looked at, changed, and kept on record.

    Values are plain data: they stand in the record.
    """

    kind = ""
    """What it is in plain words, such as `unit`."""
    section = ""
    """The part of the record that has what each of the kind was before gpusetup."""
    whole = False
    """Whether that part is of this one thing alone, or a list that all of the kind share."""
    stays = False
    """Whether it stays as it is, until removal, where nobody asks for it any more."""
    goes_back = False
    """Whether an apply that fails brings it back with the files that it wrote."""

    def __init__(self, name: str) -> None:
        self.name = name

    def look(self) -> Any:
        """Return what the host has now."""
        raise NotImplementedError

    def make(self, wanted: Any) -> None:
        """Change the host."""
        raise NotImplementedError

    def fits(self, now: Any, wanted: Any) -> bool:
        """Tell whether there is nothing to do."""
        return bool(now == wanted)

    def came_about(self, now: Any, wanted: Any) -> bool:
        """Tell whether what was done had its effect."""
        return self.fits(now, wanted)

    def failure(self, now: Any, wanted: Any) -> HostFailure:
        """Return what is to be said when it had none."""
        raise NotImplementedError

    def clear_up(self) -> None:
        """Take away what a call that was cut left beside it."""

    def aim(self, wanted: Any) -> str:
        """Say what is to become of it, as the end of a sentence that begins with its name."""
        return f"become {wanted}" if wanted is not None else "go"

    def first(self, state: State) -> Any:
        """Return what was there before gpusetup, UNKNOWN when it is not on record."""
        return state[self.section].get(self.name, UNKNOWN)

    def note(self, state: State, before: Any, _wanted: Any) -> None:
        """Put on record what was there before; what an earlier call noted stays."""
        state[self.section].setdefault(self.name, before)

    def settle(self, state: State, wanted: Any) -> None:
        """What was wanted has come about."""

    def forget(self, state: State) -> None:
        """Take it off the record: the host has what it had before gpusetup."""
        state[self.section].pop(self.name, None)

    def back(self, _now: Any, first: Any) -> Any:
        """Return what the host is to have after removal."""
        return first

    def again(self, _now: Any, before: Any, _noted: List[Any]) -> Any:
        """Return what the host is to have after an apply that failed, from what it found on the host and on record."""
        return before

    def noted(self, state: State) -> List[Any]:
        """Return what is on record of it as a list: empty where nothing is."""
        kept = state[self.section]
        return copy.deepcopy([kept] if self.whole else [kept[self.name]] if self.name in kept else [])

    def note_again(self, state: State, noted: List[Any]) -> None:
        """Have on record what was."""
        if self.whole:
            state[self.section] = noted[0]
        else:
            state[self.section].pop(self.name, None)
            if noted:
                state[self.section][self.name] = noted[0]


class Journal:
    """The state file of one host. `check` keeps everything as it is and only tells what would change."""

    def __init__(self, folder: str, check: bool = False) -> None:
        self.folder = folder
        self.check = check
        self.path = os.path.join(folder, "state.json")
        self.state = _filled(_kept(self.path))
        self._seen = files.digest(files.read_bytes(self.path) or b"")
        self._swept = False
        self.goes_back = False
        """Whether what changes from here on only comes back: no change of the apply under way, which `revert` ends."""

    def save(self) -> None:
        """Write the state in one step, if there is anything new in it."""
        text = json.dumps(self.state, indent=1, sort_keys=True) + "\n"
        if self.check or files.digest(text) == self._seen:
            return
        self._make_folder()
        with files.locked(os.path.join(self.folder, "lock")):
            if files.digest(files.read_bytes(self.path) or b"") != self._seen:
                raise HostFailure(
                    "GS-452", "something else is changing this host: its record has just changed",
                    self.path, hint="wait until it ends, then run the same command again",
                )  # fmt: skip
            if not self._swept:
                files.sweep(self.path)
                self._swept = True
            files.write_atomically(self.path, text, 0o600)
            self._seen = files.digest(text)

    def _make_folder(self) -> None:
        """Nobody but root lists it; everybody may pass through it to `status.json`, which is for all to read."""
        for folder, mode in (("", 0o711), ("history", 0o700), ("originals", 0o700)):
            path = os.path.join(self.folder, folder)
            if not os.path.isdir(path):
                os.makedirs(path, mode, exist_ok=True)
            if stat.S_IMODE(os.stat(path).st_mode) != mode:
                os.chmod(path, mode)

    def tell(self, **parts: Any) -> None:
        """Put on record what the apply is and what is expected of it; things on the host go through `change`."""
        unknown = sorted(set(parts) - set(_TOLD))
        if unknown:
            raise ValueError(f"not of the apply: {unknown}")
        self.state.update(parts)
        if self.state["apply"].get("finished"):  # it never goes back
            self.state["previous"] = {}
        self.save()

    def claim_holds(self, names: List[str]) -> None:
        """Put holds on record that are ours by what else says so: the record that knew it was lost."""
        self.state["holds"] = names
        self.save()

    def note_timer(self, unit: str) -> None:
        """A timer of our own was not there before us; its unit file says what it should be."""
        first = {"enabled": False, "was_enabled": False, "was_active": False, "link": ""}
        self.state["services"].setdefault(unit, first)
        self.save()

    def forget_timer(self, unit: str) -> None:
        """It is gone."""
        self.state["services"].pop(unit, None)
        self.save()

    @property
    def under_way(self) -> bool:
        """Whether an apply has begun and not ended."""
        return self.state["apply"].get("id") is not None and not self.state["apply"].get("finished")

    # the door

    def change(self, thing: Thing, wanted: Any, now: Any = UNKNOWN) -> bool:
        """Bring a thing to what is wanted; return whether that changed it. `now` is a look of a moment ago."""
        seen = thing.look() if now is UNKNOWN else now
        if thing.fits(seen, wanted):
            if not self.check:
                self._clear_up(thing)
                thing.note(self.state, seen, wanted)
                thing.settle(self.state, wanted)
                self._close(thing.kind, thing.name)
                self.save()
            return False
        if self.check:
            return True
        self._clear_up(thing)
        noted, goes_on = thing.noted(self.state), self.opened(thing.kind, thing.name)
        thing.note(self.state, seen, wanted)
        try:
            self._do(thing, seen, wanted, noted)
        except HostFailure:
            if not goes_on and thing.look() == seen:  # it left the host as it was
                thing.note_again(self.state, noted)
                self._close(thing.kind, thing.name)
                self.save()
            raise
        thing.settle(self.state, wanted)
        self._close(thing.kind, thing.name)
        self.save()
        return True

    def undo(self, thing: Thing, now: Any = UNKNOWN) -> bool:
        """Bring a thing back to what it was before gpusetup; return whether that changed it."""
        first = thing.first(self.state)
        if first is UNKNOWN:
            return False
        seen = thing.look() if now is UNKNOWN else now
        differs = self._bring(thing, seen, thing.back(seen, first))
        if not self.check:
            thing.forget(self.state)
            self._close(thing.kind, thing.name)
            self.save()
        return differs

    def revert(self, thing: Thing) -> bool:
        """Bring a thing back to what the apply under way found; return whether that changed it."""
        entry = next(item for item in self.to_revert() if item["thing"] == _key(thing.kind, thing.name))
        seen = thing.look()
        differs = self._bring(thing, seen, thing.again(seen, entry["before"], entry["noted"]))
        if not self.check:
            thing.note_again(self.state, entry["noted"])
            self.state["previous"]["things"].remove(entry)
            self._close(thing.kind, thing.name)
            self.save()
        return differs

    def give_up(self, thing: Thing) -> bool:
        """Close what a cut left open and nobody asks for any more; return whether that changed the thing."""
        changed = self.change(thing, thing.look()) if thing.stays else self.undo(thing)
        self._close(thing.kind, thing.name)
        self.save()
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

    def _do(self, thing: Thing, before: Any, wanted: Any, noted: List[Any]) -> None:
        if thing.goes_back:
            self._keep_for_revert(_key(thing.kind, thing.name), before, noted)
        self._open(thing.kind, thing.name, before, wanted, thing.aim(wanted))
        thing.make(wanted)
        now = thing.look()
        if not thing.came_about(now, wanted):
            raise thing.failure(now, wanted)

    def _keep_for_revert(self, key: str, before: Any, noted: List[Any]) -> None:
        """Keep what this apply found, and what was on record, before its first change of a thing."""
        apply = self.state["apply"]
        if not self.under_way or self.goes_back:
            return
        if self.state["previous"].get("apply") != apply["id"]:
            self.state["previous"] = {"apply": apply["id"], "things": []}
        if all(item["thing"] != key for item in self.state["previous"]["things"]):
            self.state["previous"]["things"].append({"thing": key, "before": before, "noted": noted})

    def to_revert(self) -> List[Dict[str, Any]]:
        """Return the things that the apply under way has changed, the last first."""
        kept = self.state["previous"]
        return kept["things"][::-1] if self.under_way and kept.get("apply") == self.state["apply"]["id"] else []

    def _open(self, kind: str, name: str, before: Any, wanted: Any, aim: str) -> None:
        """Put on record, for good, what is about to be done."""
        self.state["open"][_key(kind, name)] = {
            "what": f"{kind} {name}",
            "aim": aim,
            "since": now(),
            "apply": self.state["apply"].get("id"),
            "before": before,
            "wanted": wanted,
        }
        self.save()

    def _close(self, kind: str, name: str) -> None:
        self.state["open"].pop(_key(kind, name), None)

    def begin(self, kind: str, name: str, aim: str) -> None:
        """Open an entry that stays open until `end`: what is done between the two leaves the host as it was."""
        self._open(kind, name, None, None, aim)

    def end(self, kind: str, names: Iterable[str]) -> None:
        """Close such entries."""
        for name in names:
            self._close(kind, name)
        self.save()

    def opened(self, kind: str, name: str) -> Optional[Dict[str, Any]]:
        """Return the entry that a cut left open, None without one."""
        found: Optional[Dict[str, Any]] = self.state["open"].get(_key(kind, name))
        return found

    def unfinished(self) -> List[str]:
        """Return what was begun and has not come about."""
        return sorted(str(entry["what"]) for entry in self.state["open"].values())


def _key(kind: str, name: str) -> str:
    return kind + ":" + name


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


def now() -> str:
    """Return the time as text that sorts."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
