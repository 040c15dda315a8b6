"""One private folder per run: plan, overlay inventory, events, full log, summary."""

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from gpusetup.drive.causes import in_short
from gpusetup.errors import BadInputError, PreflightError

_KEPT = 50
_ALIVE = ".alive"
_ORDER = "runs.order"
"""The runs in the order in which they began, one name per line; locked while a run begins."""


def state_home(environment: Mapping[str, str]) -> Path:
    """Return the folder of runs: $GPUSETUP_STATE, $XDG_STATE_HOME/gpusetup or ~/.local/state/gpusetup."""
    if own := environment.get("GPUSETUP_STATE"):
        return Path(own).absolute()
    base = environment.get("XDG_STATE_HOME")
    if base and base.startswith("/"):
        return Path(base) / "gpusetup"
    return Path(environment.get("HOME") or Path.home()) / ".local/state/gpusetup"


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file so that a power cut or another writer leaves a complete one."""
    descriptor, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(frozen=True)
class RunDirectory:
    """The folder of one run and its files."""

    path: Path
    held: IO[bytes] | None = field(default=None, repr=False, compare=False)
    """The locked file that marks the run as alive."""

    @property
    def id(self) -> str:
        """The run's name, which begins with its start time."""
        return self.path.name

    @property
    def events(self) -> Path:
        """Every event of every playbook, one JSON object per line."""
        return self.path / "events.jsonl"

    @property
    def log(self) -> Path:
        """Ansible's output."""
        return self.path / "ansible.log"

    @property
    def overlay(self) -> Path:
        """The inventory folder with the plan's variables per host."""
        return self.path / "overlay"

    def write(self, name: str, document: object) -> Path:
        """Write a JSON document into the folder atomically."""
        import msgspec

        target = self.path / name
        write_whole(target, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n", 0o600)
        return target

    def append_log(self, text: str) -> None:
        """Append to the full log."""
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as log:
            log.write(text)


def new_run(
    home: Path, now: datetime | None = None, *, spared: Callable[[list[Path]], Collection[Path]] = lambda _runs: ()
) -> RunDirectory:
    """Make the folder of a new run and delete the oldest runs, except live ones and those that `spared` returns."""
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
    runs = home / "runs"
    path = runs / f"{stamp}-{secrets.token_hex(3)}"
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(home / _ORDER, "a+b", opener=_private) as order:
            fcntl.flock(order, fcntl.LOCK_EX)
            before = runs_in_order(home)
            path.mkdir(mode=0o700)
            held = open(path / _ALIVE, "ab", opener=_private)  # noqa: SIM115 - it stays open for as long as the run lives
            fcntl.flock(held, fcntl.LOCK_EX)
            left = _prune([*before, path], spared)
            order.truncate(0)
            order.write("".join(f"{run.name}\n" for run in left).encode())
    except OSError as error:
        raise BadInputError(
            "GS-402", f"cannot save the record of this run in {runs}: {error.strerror}", path=str(runs)
        ) from error
    return RunDirectory(path, held)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def runs_in_order(home: Path) -> list[Path]:
    """Return the folders of runs, oldest first: in recorded order, since the clock may have been set back."""
    names: list[str] = []
    with suppress(OSError):
        names = (home / _ORDER).read_text(encoding="utf-8", errors="replace").splitlines()
    begun = {name: number for number, name in enumerate(names)}
    with suppress(OSError):
        folders = [entry for entry in (home / "runs").iterdir() if entry.is_dir()]
        return sorted(folders, key=lambda folder: (begun.get(folder.name, -1), folder.name))
    return []


def live_runs(home: Path) -> list[str]:
    """Return the ids of runs whose process is alive."""
    return [run.name for run in runs_in_order(home) if _lives(run)]


def _prune(runs: list[Path], spared: Callable[[list[Path]], Collection[Path]]) -> list[Path]:
    """Delete all but the newest runs; return the rest. `spared` is called only if a run would be deleted."""
    old = runs[:-_KEPT]
    stays = set(spared(runs)) if old else set()
    gone = {run for run in old if run not in stays and not _lives(run)}
    for run in gone:
        shutil.rmtree(run, ignore_errors=True)
    return [run for run in runs if run not in gone]


def _lives(run: Path) -> bool:
    try:
        with (run / _ALIVE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def occupy(home: Path, hosts: Iterable[str], command: str) -> Iterator[None]:
    """Lock these hosts for this process; raise if another gpusetup has one of them.

    Each process locks a file that lists its hosts; the kernel releases the lock however the process ends.
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


@contextmanager
def alone(place: Path, taken: PreflightError) -> Iterator[None]:
    """Lock a folder, or a file that exists only meanwhile; raise `taken` if another process has it.

    The kernel frees it however the process ends. A network file system may have no locks.
    """
    folder = place.is_dir()
    held = os.open(place, os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _locked(held, place):
            raise taken
        try:
            yield
        finally:
            if not folder:
                place.unlink(missing_ok=True)
    finally:
        os.close(held)


def _locked(held: int, place: Path) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(held), place.stat())  # else its last holder deleted it
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:
        return True


def _claim(path: Path) -> dict[str, Any] | None:
    """Return the claim of a live process; delete the file of a dead one and return None."""
    try:
        file = path.open("r+", encoding="utf-8")
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            claim: dict[str, Any] = json.load(file)
            return claim
        path.unlink(missing_ok=True)
        return None


def _occupied(claim: dict[str, Any], shared: list[str]) -> PreflightError:
    return PreflightError(
        "GS-403", f"another gpusetup is working on {in_short(shared)}",
        context=f"process {claim['pid']}: gpusetup {claim['command']}", note="nothing was changed",
    )  # fmt: skip
