"""systemd units: enable and start them, with their earlier state on record."""

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..gpu_judge.names import ENABLED
from . import process, systemd
from .failure import HostFailure, tried
from .journal import State, Thing
from .ledger import Ledger

_UNIT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9@:._-]*$")
_SWITCHED_ON = ("enabled", "enabled-runtime")
"""The states that disabling ends."""
_SUFFIXES = (".service", ".path", ".timer", ".socket")


def full_name(name: str) -> str:
    if not _UNIT.fullmatch(name):
        raise HostFailure("GS-487", f"{name!r} is not a unit name")
    return name if name.endswith(_SUFFIXES) else name + ".service"


def look(units: Sequence[str], env: Dict[str, str]) -> Dict[str, Dict[str, Any]]:
    """Return {unit: {"exists", "state", "enabled", "active", "failed"}} with one call."""
    found = {}
    for fields, unit in zip(systemd.shown(units, "Id,LoadState,UnitFileState,ActiveState", env), units):
        found[unit] = {
            "exists": fields.get("LoadState") == "loaded",
            "state": fields.get("UnitFileState", ""),
            "enabled": fields.get("UnitFileState") in ENABLED,
            "active": fields.get("ActiveState") in ("active", "activating", "reloading"),
            "failed": fields.get("ActiveState") == "failed",
        }
    if len(found) != len(units):
        raise HostFailure("GS-487", "systemd does not answer", ", ".join(units), hint="systemctl show says why")
    return found


class Unit(Thing):
    """A unit; the wanted value says whether it is enabled and whether it runs, None for either."""

    kind = "unit"
    section = "services"
    goes_back = True

    def __init__(self, name: str, env: Dict[str, str]) -> None:
        super().__init__(name)
        self.env = env
        self.said = ""

    def look(self) -> Dict[str, Any]:
        return look([self.name], self.env)[self.name]

    def fits(self, now: Dict[str, Any], wanted: Dict[str, Any]) -> bool:
        """Return whether it is as wanted; a static unit starts by itself and cannot be disabled."""
        enabled = now["state"] in _SWITCHED_ON if wanted["enabled"] is False else now["enabled"]
        return wanted["enabled"] in (None, enabled) and wanted["active"] in (None, now["active"])

    def came_about(self, now: Dict[str, Any], wanted: Dict[str, Any]) -> bool:
        """Return whether it took effect; a service that ends when it is done need not be running."""
        ended_well = bool(wanted["active"]) and not now["failed"]
        return self.fits(dict(now, active=True) if ended_well else now, wanted)

    def make(self, wanted: Dict[str, Any]) -> None:
        enabled, active = wanted["enabled"], wanted["active"]
        verbs = [] if enabled is None else ["enable" if enabled else "disable"]
        now = ["--now"] if verbs and enabled == active else []
        verbs += [] if active is None or now else ["start" if active else "stop"]
        for verb in verbs:
            code, _out, error = process.output(["systemctl", verb, *now, self.name], self.env, 120)
            self.said = error.strip()
            if code and wanted["enabled"]:
                raise self._did_not_start()

    def aim(self, wanted: Dict[str, Any]) -> str:
        words = {"enabled": ("disabled", "enabled"), "active": ("stopped", "started")}
        return "be " + " and ".join(
            words[key][wanted[key]] for key in sorted(words, reverse=True) if wanted[key] in (False, True)
        )

    def failure(self, now: Dict[str, Any], wanted: Dict[str, Any]) -> HostFailure:
        if wanted["enabled"] or wanted["active"]:
            return self._did_not_start()
        what = "runs" if now["active"] and wanted["active"] is False else "is enabled"
        return HostFailure(
            "GS-487", f"{self.name} still {what}", self.said, hint="systemctl disable --now " + self.name
        )

    def _did_not_start(self) -> HostFailure:
        journal = systemd.last_words(self.name, self.env)
        return HostFailure("GS-487", f"{self.name} did not start", self.said, journal, "journalctl -u " + self.name)

    def note(self, state: State, before: Dict[str, Any], _wanted: Any) -> None:
        """Record its state before us, and that it is to be enabled."""
        first = state[self.section].get(self.name, {"was_enabled": before["enabled"], "was_active": before["active"]})
        state[self.section][self.name] = dict(first, enabled=True)

    def back(self, now: Dict[str, Any], first: Dict[str, Any]) -> Dict[str, Any]:
        """Return what to disable and stop; what an administrator has disabled since stays disabled."""
        disable = now["state"] in _SWITCHED_ON and not first["was_enabled"]
        stop = now["active"] and not first["was_active"]
        return {"enabled": False if disable else None, "active": False if stop else None}

    def again(self, now: Dict[str, Any], before: Dict[str, Any], _noted: List[Any]) -> Dict[str, Any]:
        """Return only what changed; nothing for a unit that is gone."""
        return {
            key: before[key] if now["exists"] and now[key] != before[key] else None for key in ("enabled", "active")
        }


class Paused(Unit):
    """A running unit that an interrupted call had stopped for a while."""

    kind = systemd.RESTART

    def first(self, _state: State) -> Dict[str, Any]:
        return {}

    def back(self, now: Dict[str, Any], _first: Any) -> Dict[str, Any]:
        """Start it if it still exists."""
        return {"enabled": None, "active": True if now["exists"] else None}

    def forget(self, _state: State) -> None:
        """Forget nothing: there is no other record of it."""


def _seen(ledger: Ledger, units: Sequence[str], env: Dict[str, str]) -> Dict[str, Dict[str, Any]]:
    if not ledger.check:
        systemd.read_again(units, env)
    return look(units, env) if units else {}


def bring_up(ledger: Ledger, names: Sequence[str], start: bool, env: Dict[str, str]) -> bool:
    """Enable units, and start them if `start`; return whether anything changed."""
    units = [full_name(name) for name in names]
    seen = _seen(ledger, units, env)
    missing = [unit for unit in units if not seen[unit]["exists"]]
    masked = [unit for unit in missing if seen[unit]["state"].startswith("masked")]
    if masked and not ledger.check:
        hint = "systemctl unmask {}, then run the same command again".format(" ".join(masked))
        raise HostFailure("GS-487", "somebody has masked " + ", ".join(masked), hint=hint)
    if missing and not ledger.check:
        raise HostFailure("GS-487", "no unit " + ", ".join(missing), hint="is its package in the list?")
    wanted = {"enabled": True, "active": True if start else None}
    changed = [ledger.change(Unit(unit, env), wanted, seen[unit]) for unit in units]
    return any(changed)


def take_down(ledger: Ledger, env: Dict[str, str], only: Optional[Sequence[str]] = None) -> List[str]:
    """Restore all or some units to their state before us; return those that changed."""
    changed, still = put_back(ledger, env, only)
    if still:
        raise HostFailure(
            "GS-487", "; ".join(still), hint="stop it, then run the same command again; journalctl -u UNIT says why"
        )
    return changed


def put_back(ledger: Ledger, env: Dict[str, str], only: Optional[Sequence[str]] = None) -> Tuple[List[str], List[str]]:
    """Do the same as far as possible; return what changed, and what failed as texts, which stays on record."""
    changed, still = [], []
    units = [unit for unit in sorted(ledger.state["services"]) if only is None or unit in only]
    seen = _seen(ledger, units, env)
    for unit in units:
        did, why = tried(ledger.undo, Unit(unit, env), seen[unit])
        changed += [unit] if did else []
        still += [why] if why else []
    return changed, still
