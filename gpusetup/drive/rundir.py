"""One folder per run, for its owner alone: plan, overlay inventory, events, full log, summary."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.errors import BadInputError, PreflightError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["RunDirectory", "new_run", "occupy", "state_home"]

_KEPT = 50


def state_home(environment: Mapping[str, str]) -> Path:
    """Return where runs are kept: $GPUSETUP_STATE, $XDG_STATE_HOME/gpusetup or ~/.local/state/gpusetup."""
    if own := environment.get("GPUSETUP_STATE"):
        return Path(own).absolute()
    base = environment.get("XDG_STATE_HOME")
    if base and base.startswith("/"):
        return Path(base) / "gpusetup"
    return Path(environment.get("HOME") or Path.home()) / ".local/state/gpusetup"


@dataclass(frozen=True)
class RunDirectory:
    """The folder of one run and what is where in it."""

    path: Path

    @property
    def id(self) -> str:
        """The run's name, which begins with its time."""
        return self.path.name

    @property
    def events(self) -> Path:
        """Every event of every playbook, one JSON object per line."""
        return self.path / "events.jsonl"

    @property
    def log(self) -> Path:
        """What Ansible printed."""
        return self.path / "ansible.log"

    @property
    def overlay(self) -> Path:
        """The inventory folder with the plan's variables per host."""
        return self.path / "overlay"

    def write(self, name: str, document: object) -> Path:
        """Write a JSON document into the folder, whole or not at all."""
        import msgspec

        target = self.path / name
        partial = target.with_name(f".{target.name}.part")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
        partial.chmod(0o600)
        partial.replace(target)
        return target

    def append_log(self, text: str) -> None:
        """Add to the full log."""
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as log:
            log.write(text)


def new_run(home: Path, now: datetime | None = None) -> RunDirectory:
    """Make the folder of a new run, and let the oldest ones go."""
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
    runs = home / "runs"
    path = runs / f"{stamp}-{secrets.token_hex(3)}"
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        for old in sorted(entry for entry in runs.iterdir() if entry.is_dir())[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise BadInputError(
            "GS-402",
            f"cannot keep a record of this run in {runs}: {error.strerror}",
            path=str(runs),
            hint="make the folder writable, or set GPUSETUP_STATE to one that is",
        ) from error
    return RunDirectory(path)


@contextmanager
def occupy(home: Path, hosts: Iterable[str], command: str) -> Iterator[None]:
    """Keep these hosts to this process: two applies never meet on a host.

    Each process holds a lock on a file that lists its hosts; the kernel lets go of it however the process ends.
    """
    wanted = set(hosts)
    folder = home / "locks"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = folder / f"{os.getpid()}-{secrets.token_hex(3)}.json"
    with (folder / "registry").open("a+b") as registry:
        fcntl.flock(registry, fcntl.LOCK_EX)
        for other in folder.glob("*.json"):
            claim = _claim(other)
            if claim is not None and (shared := sorted(wanted & set(claim["hosts"]))):
                raise _occupied(claim, shared)
        held = own.open("w", encoding="utf-8")
        fcntl.flock(held, fcntl.LOCK_EX)
        json.dump({"pid": os.getpid(), "command": command, "hosts": sorted(wanted)}, held)
        held.flush()
    try:
        yield
    finally:
        own.unlink(missing_ok=True)
        held.close()


def _claim(path: Path) -> dict[str, Any] | None:
    """Return what a living process holds; what a dead one left is cleared away."""
    with path.open("r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            claim: dict[str, Any] = json.load(file)
            return claim
        path.unlink(missing_ok=True)
        return None


def _occupied(claim: dict[str, Any], shared: list[str]) -> PreflightError:
    names = ", ".join(shared[:5]) + (f" and {len(shared) - 5} more" if len(shared) > 5 else "")
    return PreflightError(
        "GS-403",
        f"another gpusetup works on {names}",
        context=f"process {claim['pid']}: gpusetup {claim['command']}",
        note="nothing was changed",
        hint="wait for it to end, then run the same command again",
    )
