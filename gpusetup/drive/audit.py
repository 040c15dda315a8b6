"""The audit log: who changed what on which host, one line before a change and one after it, in an append-only file.

Each line holds the digest of the line before, which reveals a changed or deleted line. A small second file holds number
and digest of the last line, which reveals a truncated log. Whoever can write both files can forge the log, unless it is
append-only (`chattr +a`) or the last digest is kept elsewhere: gpusetup sends it to syslog.
"""

import errno
import fcntl
import getpass
import hashlib
import os
import platform
import syslog
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpusetup.drive.inventory import folded
from gpusetup.drive.playbook import Session
from gpusetup.drive.rundir import state_home, write_whole
from gpusetup.errors import BadInputError, GpuSetupError, PreflightError
from gpusetup.model import UNDECODED, kept_in, stamp
from gpusetup.model.audit import AuditGroup, AuditLine, AuditWho, Event

FILE = "audit.jsonl"
_HEAD = "audit.head"
_ROOM, _ROOM_OF_A_HOST = 1 << 20, 400
"""Free bytes required before a change, so that its result can be logged too."""
_TAIL = 1 << 16


class _Head(msgspec.Struct, frozen=True):
    number: int
    digest: str


class Found(NamedTuple):
    """The lines of a log, and what is wrong with it."""

    lines: tuple[AuditLine, ...]
    head: str
    troubles: tuple[str, ...]
    notes: tuple[str, ...]


def who() -> AuditWho:
    """Return the user of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # a user id without a name
    login = ""
    with suppress(OSError, ValueError, KeyError):
        import pwd

        login = pwd.getpwuid(int(Path("/proc/self/loginuid").read_text(encoding="ascii"))).pw_name
    return AuditWho(
        user=user, login=login, sudo=os.environ.get("SUDO_USER", ""), machine=platform.node(),
        came_from=os.environ.get("SSH_CONNECTION", "").partition(" ")[0],
    )  # fmt: skip


def line_of(event: Event, command: str, *, run: str = "", inventory: str = "", note: str = "") -> AuditLine:
    """Return a line to add, with the current time and user."""
    return AuditLine(
        number=0, time=stamp(), event=event, command=command, run=run, who=who(), inventory=inventory, note=note
    )


def add(home: Path, line: AuditLine, *, hosts: int = 0) -> AuditLine:
    """Append a line with its number and the digest of the line before; it is on disk when this returns.

    `hosts`: the number of hosts in a later line. Raises if the disk has too little space for that one.
    """
    path = home / FILE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(log, fcntl.LOCK_EX)
            disk = os.fstatvfs(log)
            if hosts and disk.f_bavail * disk.f_frsize < _ROOM + hosts * _ROOM_OF_A_HOST:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            number, digest, torn = _last(path)
            line = replace(line, number=number + 1, before=digest)
            text = msgspec.json.encode(line)
            _write(log, b"\n" * torn + text + b"\n")
            write_whole(home / _HEAD, msgspec.json.encode(_Head(line.number, _digest(text))), 0o600)
        finally:
            os.close(log)
    except OSError as error:
        raise PreflightError(
            "GS-941",
            f"cannot write the audit log {path}: {error.strerror}",
            path=str(path),
            note="gpusetup changed nothing, because it must log changes first" if line.event == "begin" else "",
        ) from error
    _tell_syslog(line, _digest(text))
    return line


@contextmanager
def on_record(
    session: Session,
    command: str,
    hosts: Mapping[str, str],
    ends: Callable[[], Mapping[str, str]],
    say: Callable[[str], None],
) -> Iterator[None]:
    """Log a change before the block runs, and the result of each host afterwards, however the block ends."""
    home = state_home(session.environment)
    line = replace(
        line_of("begin", session.command or command, run=session.run.id, inventory=session.reach.inventory or ""),
        groups=_groups(hosts),
    )
    add(home, line, hosts=len(hosts))
    note = "ended by an error of gpusetup"
    try:
        yield
        note = ""
    except GpuSetupError as error:
        note = f"{error.reference}: {error.message}"
        raise
    except KeyboardInterrupt:
        note = "stopped"
        raise
    finally:
        try:
            add(home, replace(line, time=stamp(), event="end", groups=_groups(ends()), note=note))
        except PreflightError as error:
            say(f"{error.message}: what became of the hosts is in {session.run.path} alone")


def read(home: Path, elsewhere: str = "") -> Found:
    """Read a log and verify it, also against a head NUMBER:DIGEST that was kept elsewhere."""
    path = home / FILE
    troubles: list[str] = []
    notes: list[str] = []
    lines: list[AuditLine] = []
    digests: dict[int, str] = {}
    number, before = 0, ""
    with suppress(FileNotFoundError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        for raw in file:
            number, text = number + 1, raw.removesuffix(b"\n")
            found = _line(text)
            if found is None:
                notes.append(f"line {number} was cut, as by a crash")
            else:
                if found.before != before:
                    troubles.append(
                        f"line {number} does not follow line {number - 1}: one of them was changed or taken out"
                    )
                elif found.number != number:
                    troubles.append(f"line {number} calls itself {found.number}")
                lines.append(found)
            before = digests[number] = _digest(text)
    head = kept_in(home / _HEAD, _Head)
    if head is not None and number < head.number:
        troubles.append(f"the end was cut off: {head.number} lines were written, {number} are there")
    elif head is not None and digests.get(head.number) != head.digest:
        troubles.append(f"line {head.number} is not the one that was written")
    elif head is None and number:
        troubles.append(f"{home / _HEAD} is missing, which holds the log's length")
    kept, _, digest = elsewhere.partition(":")
    if elsewhere and not (kept.isdecimal() and digest):
        raise BadInputError(
            "GS-942", f"{elsewhere!r} is not NUMBER:DIGEST", path="--head", hint="gpusetup fleet audit --verify"
        )
    if elsewhere and digests.get(int(kept)) != digest:
        troubles.append(f"line {kept} is not the one whose digest was kept elsewhere")
    return Found(tuple(lines), f"{number}:{before}" if number else "", tuple(troubles), tuple(notes))


def _groups(hosts: Mapping[str, str]) -> tuple[AuditGroup, ...]:
    alike: dict[str, list[str]] = {}
    for name, what in hosts.items():
        alike.setdefault(what, []).append(name)
    return tuple(AuditGroup(hosts=folded(names), number=len(names), what=what) for what, names in alike.items())


def _last(path: Path) -> tuple[int, str, bool]:
    """Return number and digest of the last line, and whether its newline is missing."""
    with path.open("rb") as file:
        size, tail = file.seek(0, os.SEEK_END), b""
        at = size
        while at and tail.count(b"\n") < 3:
            at = max(0, at - _TAIL)
            file.seek(at)
            tail = file.read(size - at)
        if not size:
            return 0, "", False
        torn = not tail.endswith(b"\n")
        text = tail.removesuffix(b"\n").rpartition(b"\n")[2]
        line = _line(text)
        if line is not None:
            return line.number, _digest(text), torn
        file.seek(0)
        return sum(1 for _ in file), _digest(text), torn


def _line(text: bytes) -> AuditLine | None:
    try:
        return msgspec.json.decode(text, type=AuditLine)
    except UNDECODED:
        return None


def _write(descriptor: int, data: bytes) -> None:
    """Write data and sync it; a partial write means that the disk is full."""
    if os.write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(descriptor)


def _tell_syslog(line: AuditLine, digest: str) -> None:
    hosts = sum(group.number for group in line.groups)
    about = f"{line.command} {line.event}, {hosts} hosts, run {line.run}" if line.run else f"{line.command} {line.note}"
    person = line.who.login or line.who.sudo or line.who.user
    syslog.syslog(
        syslog.LOG_NOTICE | syslog.LOG_AUTHPRIV, f"gpusetup fleet audit {line.number}:{digest} {person}: {about}"
    )


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
