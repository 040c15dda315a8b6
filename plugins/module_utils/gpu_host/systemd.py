"""What systemd reports about a unit: the end of its journal, its start. Units that are stopped for a while. Keys and
passwords that systemd passes to a service, so that only root can read their files.
"""

import os
import re
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from . import process
from .failure import HostFailure

Env = Dict[str, str]
RESTART = "restart of"
"""The kind of the record's entry for a unit that is stopped for a while."""
FOLDER, RUNNING = "/etc/systemd/system", "/run/systemd/system"
_SECONDS = 120
_SINCE = 247
"""The first systemd with LoadCredential."""


def last_words(unit: str, env: Env) -> str:
    """Return the end of a unit's journal."""
    argv = ["journalctl", "-u", unit, "-n", "15", "--no-pager", "-o", "cat"]
    return process.output(argv, env, 20)[1].strip()[-900:]


def shown(units: Sequence[str], properties: str, env: Env) -> List[Dict[str, str]]:
    """Return these properties of each unit."""
    code, text, error = process.output(["systemctl", "show", "--property=" + properties, *units], env, 30)
    if code and os.path.isdir(RUNNING):
        raise HostFailure("GS-487", "systemd does not answer", ", ".join(units), error.strip(), "systemctl status")
    return [dict(re.findall(r"^(\w+)=(.*)$", block, re.MULTILINE)) for block in re.split(r"\n\s*\n", text.strip())]


def restart(unit: str, env: Env, reference: str = "GS-487", how: str = "") -> None:
    """Restart a unit; fail with the end of its journal if it does not start."""
    code, _out, error = process.output(["systemctl", "restart", unit], env, _SECONDS)
    if code:
        said = last_words(unit, env)
        raise HostFailure(reference, f"{unit} did not start{how}", error.strip(), said, "journalctl -u " + unit)


def active_since(unit: str, env: Env) -> Optional[float]:
    """Return since when a unit is active, by this host's clock; None if it is not."""
    (fields,) = shown([unit], "ActiveState,ActiveEnterTimestampMonotonic", env)
    if fields.get("ActiveState") != "active":
        return None
    return time.time() - time.monotonic() + int(fields.get("ActiveEnterTimestampMonotonic") or 0) / 1e6


def read_again(units: Sequence[str], env: Env) -> None:
    """Have systemd reload if the files of one of these units have changed since, or are new to it."""
    if not units:
        return
    for unit, fields in zip(units, shown(units, "LoadState,NeedDaemonReload", env)):
        new = fields.get("LoadState") == "not-found" and os.path.exists(os.path.join(FOLDER, unit))
        if new or fields.get("NeedDaemonReload") == "yes":
            read_all_again(env)
            return


def read_all_again(env: Env) -> None:
    """Have systemd reload all units, if it runs."""
    code, _out, error = process.output(["systemctl", "daemon-reload"], env, 60)
    if code and os.path.isdir(RUNNING):
        raise HostFailure("GS-487", "systemd does not read its units again", "systemctl daemon-reload", error.strip())


def units_of(paths: Iterable[str]) -> List[str]:
    """Return the units to which files belong, as unit file or drop-in (NAME.service.d/…)."""
    places = [path.rpartition("/systemd/system/")[2] for path in paths if "/systemd/system/" in path]
    return sorted({re.sub(r"(\.d)?/.*", "", place) for place in places})


def leave_login(env: Env) -> None:
    """Move this process into a scope of its own: logind may end all processes of a login with it."""
    if os.path.isdir(RUNNING):
        pid, bus = str(os.getpid()), "org.freedesktop.systemd1"
        call = ["busctl", "call", bus, "/org/freedesktop/systemd1", bus + ".Manager", "StartTransientUnit"]
        scope = ["ssa(sv)a(sa(sv))", f"gpusetup-{pid}.scope", "fail", "1", "PIDs", "au", "1", pid, "0"]
        process.output([*call, *scope], env, 30)


class Stopped:
    """Units that are stopped for a while and started again in any case.

    Meanwhile they are open entries of `record`, the host's journal: after an interruption the next run starts them.
    """

    def __init__(self, units: Sequence[str], env: Env, record: Any = None) -> None:
        self.units, self.env, self.record = units, env, record
        self.stopped: List[str] = []
        self.trouble: Optional[str] = None
        """Why the first of them did not stop, or did not start again."""

    def __enter__(self) -> "Stopped":  # noqa: PYI034 - hosts have no typing_extensions
        try:
            self.stop(self.units)
        except BaseException:
            self.__exit__()
            raise
        return self

    def stop(self, units: Sequence[str]) -> None:
        """Stop those that run. One that does not stop is found by the later check for users of the GPU."""
        for unit in units:
            runs = process.looked("GS-487", ["systemctl", "is-active", "--quiet", unit], self.env, "")[0] == 0
            if runs or (self.record is not None and self.record.opened(RESTART, unit)):
                if self.record is not None:
                    self.record.begin(RESTART, unit, "be done")
                self.stopped.append(unit)
                code, _out, error = process.output(["systemctl", "stop", unit], self.env, _SECONDS)
                self._note(code, f"{unit} does not stop: {error.strip()}")

    def __exit__(self, *_details: object) -> None:
        again = []
        for unit in reversed(self.stopped):
            code, _out, error = process.output(["systemctl", "start", unit], self.env, _SECONDS)
            self._note(code, f"{unit} does not start again: {error.strip()}")
            again += [] if code else [unit]
        if self.record is not None and again:
            self.record.end(RESTART, again)

    def _note(self, code: int, why: str) -> None:
        if code and not self.trouble:
            self.trouble = why


def credential_refusals(
    paths: Iterable[Tuple[str, bool]], env: Dict[str, str], instead: str
) -> Iterator[Tuple[str, str]]:
    """Yield (message, hint) for missing files, secrets open to everybody (paths marked True), and too old a systemd."""
    for path, secret in paths:
        if not os.path.isfile(path):
            yield f"{path} is not on this host", "put it there, or correct its path"
        elif secret and os.stat(path).st_mode & 0o007:
            yield f"{path} can be read by everybody", "chmod 600 " + path
    found = re.match(r"systemd (\d+)", process.output(["systemctl", "--version"], env, 20)[1])
    if found and int(found.group(1)) < _SINCE:
        had = found.group(1)
        yield f"systemd {had} cannot hand a key to a service without opening it to others ({_SINCE} can)", instead
