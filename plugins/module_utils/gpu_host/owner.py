"""The owner of this host: one apply or removal at a time, from its beginning to its record.

The owner shows signs of life: each step writes one when it begins and more while it runs. Anybody else is refused, with
the owner's name. A dead owner loses the host: at once to its own controller, which knows that the run is over, to
others after some time without a sign of life. Each step carries the owner's token, so an owner that was wrongly
declared dead cannot continue together with its successor, nor after it: its token stays on file as lost.
"""

import contextlib
import os
import threading
import time
import weakref
from typing import Any, Dict, Iterator, List, Optional

from . import files
from .failure import HostFailure

PATIENCE = 120.0
"""Seconds without a sign of life after which an owner counts as dead, and the longest wait for that."""
_TURN = 10.0
"""More seconds for each batch of hosts, if its controller has more hosts than it can talk to at once."""
_POLL = 1.0
_SIGN_OF_LIFE = 20.0
_BOOT_ID, _UPTIME = "/proc/sys/kernel/random/boot_id", "/proc/uptime"
FOLDER = "/var/lib/gpusetup"


def take(folder: str, who: Dict[str, Any], digest: str, patience: Optional[float] = None) -> str:
    """Own this host and return the token; wait for an owner without signs of life, fail if there are any. `patience` is
    the longest wait, PATIENCE by default; below 0: do not wait.
    """
    first: Optional[Dict[str, Any]] = None
    waited = 0.0
    while True:
        with files.locked(_lock(folder)):
            owner = _read(folder)
            if owner is None or _is_over(owner, who, digest) or _is_dead(owner):
                token = files.digest(os.urandom(16))[:16]
                named = {key: str(who.get(key) or "") for key in ("controller", "user", "run", "home")}
                silence = PATIENCE + _TURN * (max(1, int(who.get("turns") or 1)) - 1)
                lost = _lost(folder) + ([] if owner is None or _is_over(owner, who, digest) else [owner["token"]])
                _write(folder, dict(named, token=token, digest=digest, since=time.time(), patience=silence, lost=lost))
                return token
        first = first or owner
        lives = owner["seen"] != first["seen"] or owner["token"] != first["token"]
        here = owner["home"] and owner["home"] == who.get("home") and owner["run"] in (who.get("alive") or [])
        if lives or here or waited > (PATIENCE if patience is None else patience):
            raise _refusal(owner)
        time.sleep(_POLL)
        waited += _POLL


def hold(folder: str, token: str) -> None:
    """Write a sign of life; fail if somebody else owns this host."""
    if not os.path.isdir(folder):
        return  # nobody has owned it; create nothing
    with files.locked(_lock(folder)):
        owner = _read(folder)
        if owner is None and token in _lost(folder):
            what, why = "another gpusetup took this host over", "this run showed no sign of life for too long"
            raise HostFailure("GS-452", what, note=why, hint="run the same command again")
        if owner is None or (not token and _is_dead(owner)):
            return
        if owner["token"] != token:
            raise _refusal(owner)
        _write(folder, owner)


def hold_until_gone(holder: Any, folder: str, token: str) -> None:
    """Hold this host, with signs of life until `holder` is gone."""
    hold(folder, token)
    if token:
        weakref.finalize(holder, show_life(folder, token).set)


def show_life(folder: str, token: str) -> threading.Event:
    """Write signs of life from a thread until the returned event is set."""
    over = threading.Event()
    threading.Thread(target=_show_life, args=(folder, token, over), daemon=True).start()
    return over


def _show_life(folder: str, token: str, over: threading.Event) -> None:
    with contextlib.suppress(HostFailure):  # on a takeover the next step is refused
        while not over.wait(_SIGN_OF_LIFE):
            with contextlib.suppress(OSError):  # the disk may be full for a moment
                hold(folder, token)


def present(folder: str) -> Optional[Dict[str, Any]]:
    """Return the owner of this host unless it is dead."""
    now = _read(folder)
    return None if now is None or _is_dead(now) else now


def release(folder: str, token: str, *, failed: bool = False, forget: bool = False) -> None:
    """Release the host; after a failure only for roles alone (gpusetup cleans up); `forget`: also who lost it."""
    with files.locked(_lock(folder)):
        owner = _read(folder)
        if owner is not None and owner["token"] == token and not (failed and owner["home"]):
            lost = [] if forget else _lost(folder)
            if lost:
                files.write_json(_path(folder), {"lost": lost}, lasting=False)
            else:
                os.unlink(_path(folder))


def _is_over(owner: Dict[str, Any], who: Dict[str, Any], digest: str) -> bool:
    """Return whether an owner's run has ended, as far as `who` can know."""
    if owner["home"] != str(who.get("home") or ""):
        return False
    if owner["home"]:
        return owner["run"] not in (who.get("alive") or [])
    return bool(owner["digest"] == digest)  # a repeated run of the roles alone with the same wish


def _refusal(owner: Dict[str, Any]) -> HostFailure:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["since"]))
    by = "{} on {}".format(
        owner["user"] or "unknown user", owner["controller"] or "a controller that runs the roles alone"
    )
    return HostFailure(
        "GS-452",
        "another gpusetup is changing this host",
        f"{by}, since {since}" + (", run {}".format(owner["run"]) if owner["run"] else ""),
        hint=f"wait until it ends; after a crash the host is free {_patience(owner):.0f} s after its last step",
    )


def _is_dead(owner: Dict[str, Any]) -> bool:
    return _age(owner) > _patience(owner)


def _patience(owner: Dict[str, Any]) -> float:
    return float(owner.get("patience") or PATIENCE)


def _age(owner: Dict[str, Any]) -> float:
    """Return the seconds since the last sign of life by the uptime: a clock may be set; a reboot restarts the count."""
    uptime = _uptime()
    return float(uptime - owner["seen"]) if owner["boot"] == boot() else uptime


def _read(folder: str) -> Optional[Dict[str, Any]]:
    owner = files.read_json(_path(folder))
    return owner if isinstance(owner, dict) and {"token", "seen", "boot", "home"} <= set(owner) else None


def _lost(folder: str) -> List[str]:
    """Return the tokens of owners that were silent for too long and lost the host, newest last."""
    found = files.read_json(_path(folder))
    lost = found.get("lost") if isinstance(found, dict) else None
    return [str(token) for token in lost][-20:] if isinstance(lost, list) else []


def _write(folder: str, owner: Dict[str, Any]) -> None:
    files.write_json(_path(folder), dict(owner, boot=boot(), seen=_uptime()), lasting=False)


def _path(folder: str) -> str:
    return os.path.join(folder, "owner.json")


def _lock(folder: str) -> str:
    return os.path.join(folder, "lock")


def boot() -> str:
    """Return the ID of this boot."""
    return (files.read_text(_BOOT_ID) or "").strip()


def _uptime() -> float:
    return float((files.read_text(_UPTIME) or "0").split()[0])


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """Own this host during a measurement, so that no apply runs; fail at once (GS-452) if a live owner holds it.

    The process ID in the run's name shows the next caller at once that a killed measurement is over.
    """
    present_run = str((present(FOLDER) or {}).get("run") or "")
    pid = present_run.split("-")[1] if present_run.startswith("verify-") and present_run.count("-") == 2 else ""
    who: Dict[str, Any] = {
        "controller": os.uname()[1],
        "user": "",
        "run": f"verify-{os.getpid()}-{int(time.time())}",
        "home": "measures",
        "alive": [present_run] if pid.isdigit() and os.path.isdir("/proc/" + pid) else [],
    }
    token = take(FOLDER, who, "", patience=-1.0)
    over = show_life(FOLDER, token)
    try:
        yield
    finally:
        over.set()
        release(FOLDER, token)
