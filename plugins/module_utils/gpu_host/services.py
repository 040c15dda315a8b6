"""systemd units: enabled and started, with what they were before so that removal can undo it."""

import re
from typing import Any, Dict, List, Optional, Sequence

from ..gpu_judge.names import ENABLED
from . import process
from .failure import HostFailure
from .ledger import Ledger

_UNIT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9@:._-]*$")
_SUFFIXES = (".service", ".path", ".timer", ".socket")


def full_name(name: str) -> str:
    """Return a unit's full name."""
    if not _UNIT.match(name):
        raise HostFailure("GS-487", f"{name!r} is not a unit name")
    return name if name.endswith(_SUFFIXES) else name + ".service"


def look(units: Sequence[str], env: Dict[str, str]) -> Dict[str, Dict[str, Any]]:
    """Return {unit: {"exists", "enabled", "active", "link", "result"}} with one call."""
    argv = [
        "systemctl",
        "show",
        "--property=Id,LoadState,UnitFileState,ActiveState,SubState,Result,FragmentPath",
        *units,
    ]
    _code, text, error = process.output(argv, env, 30)
    found = {}
    for block, unit in zip(re.split(r"\n\s*\n", text.strip()), units):
        fields = dict(re.findall(r"^(\w+)=(.*)$", block, re.MULTILINE))
        found[unit] = {
            "exists": fields.get("LoadState") == "loaded",
            "enabled": fields.get("UnitFileState") in ENABLED,
            "active": fields.get("ActiveState") in ("active", "activating", "reloading"),
            "failed": fields.get("ActiveState") == "failed",
            "result": fields.get("Result", ""),
            "link": _wanted_link(fields.get("FragmentPath", ""), unit),
        }
    if len(found) != len(units):
        raise HostFailure("GS-487", "systemd does not answer", ", ".join(units), error.strip())
    return found


def _wanted_link(fragment: str, unit: str) -> str:
    """Return the link that enabling makes, from the unit's [Install] section; empty when it has none."""
    try:
        with open(fragment) as stream:
            match = re.search(r"^WantedBy=(\S+)", stream.read(), re.MULTILINE)
    except OSError:
        return ""
    return f"/etc/systemd/system/{match.group(1)}.wants/{unit}" if match else ""


def bring_up(ledger: Ledger, names: Sequence[str], start: bool, env: Dict[str, str], check: bool) -> bool:
    """Enable units, and start them when `start`; return whether something changed."""
    units = [full_name(name) for name in names]
    seen = look(units, env) if units else {}
    missing = [unit for unit in units if not seen[unit]["exists"]]
    if missing and not check:
        raise HostFailure(
            "GS-487",
            "no unit {}".format(", ".join(missing)),
            hint="is its package in the list?",
        )
    changed = False
    for unit in units:
        is_on, runs = seen[unit]["enabled"], seen[unit]["active"] or not start
        before = ledger.state["services"].get(unit, {"was_enabled": is_on, "was_active": seen[unit]["active"]})
        ledger.state["services"][unit] = dict(before, enabled=True, link=seen[unit]["link"])
        if is_on and runs:
            continue
        changed = True
        if check:
            continue
        code, _out, error = process.output(["systemctl", "enable"] + (["--now"] if start else []) + [unit], env, 120)
        if code:
            _log_code, journal, _log_error = process.output(
                ["journalctl", "-u", unit, "-n", "15", "--no-pager", "-o", "cat"], env, 20
            )
            raise HostFailure(
                "GS-487",
                f"{unit} did not start",
                error.strip(),
                journal.strip()[-900:],
                "journalctl -u " + unit,
            )
    return changed


def take_down(ledger: Ledger, env: Dict[str, str], check: bool, only: Optional[Sequence[str]] = None) -> List[str]:
    """Bring units, all of them or some, back to what they were before us; return those that changed."""
    changed = []
    for unit, before in sorted(ledger.state["services"].items()):
        if only is not None and unit not in only:
            continue
        seen = look([unit], env)[unit]
        argv: List[str] = []
        if seen["exists"] and seen["enabled"] and not before["was_enabled"]:
            argv = ["systemctl", "disable"] + (["--now"] if not before["was_active"] else []) + [unit]
        elif seen["exists"] and seen["active"] and not before["was_active"]:
            argv = ["systemctl", "stop", unit]
        if argv:
            changed.append(unit)
            if not check:
                process.output(argv, env, 120)
        if not check:
            del ledger.state["services"][unit]
    return changed
