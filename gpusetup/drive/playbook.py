"""Run a playbook: Ansible as a process, its events as they come, and what became of each host."""

from __future__ import annotations

import configparser
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gpusetup.content import COLLECTION
from gpusetup.drive.argv import Reach, ansible_environment, playbook_argv
from gpusetup.drive.events import Event, EventReader, Failure, Track
from gpusetup.drive.overlay import SELECTED, write_local_inventory
from gpusetup.drive.passwords import password_pipe
from gpusetup.drive.runner import Finished, stream
from gpusetup.drive.secrets import ENVIRONMENT as SECRETS
from gpusetup.drive.secrets import secrets_pipe
from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusetup.drive.rundir import RunDirectory
    from gpusetup.drive.runner import Channel
    from gpusetup.model.variables import RoleVariables

__all__ = ["Observer", "PlaybookRun", "Session", "run_playbook"]

_PACKAGE = Path(__file__).resolve().parents[1]


class Observer(Protocol):
    """Somebody who watches a playbook run."""

    def event(self, event: Event, track: Track) -> None:
        """Take an event that the track has already taken."""

    def tick(self, track: Track) -> None:
        """Take the time: called some times a second."""

    def stopping(self, track: Track) -> None:
        """Hear that a person said stop."""


@dataclass(frozen=True)
class Session:
    """What every playbook of one run shares."""

    run: RunDirectory
    collections: Path
    reach: Reach
    environment: Mapping[str, str]
    become_password: str | None = field(default=None, repr=False)
    vault_password: str | None = field(default=None, repr=False)

    def inventories(self) -> list[Path | str]:
        """Return the inventory that was asked for, or one of this machine alone."""
        if self.reach.inventory is None:
            return [write_local_inventory(self.run.path / "inventory")]
        if "," not in self.reach.inventory and not Path(self.reach.inventory).exists():
            raise BadInputError(
                "GS-406",
                f"inventory not found: {self.reach.inventory}",
                path=self.reach.inventory,
                hint="give a file or folder that `ansible-inventory -i` can read, or none for this machine",
            )
        return [self.reach.inventory]


@dataclass(frozen=True)
class PlaybookRun:
    """How a playbook ended."""

    name: str
    finished: Finished
    track: Track

    @property
    def interrupted(self) -> bool:
        """A person stopped it."""
        return self.finished.interrupted

    def data(self, host: str, action: str) -> dict[str, Any] | None:
        """Return what one of our modules answered on a host."""
        return self.track.host(host).data.get(action)


def run_playbook(
    session: Session,
    name: str,
    *,
    deadline: float,
    overlay: Path | None = None,
    variables: RoleVariables | None = None,
    observer: Observer | None = None,
    check: bool = False,
    diff: bool = False,
) -> PlaybookRun:
    """Run the playbook NAME, on the overlay's hosts when there is one. A failed host is data, no exception.

    The deadline is for as many hosts as Ansible works on at once: a large fleet has it several times over.
    """
    run = session.run
    track, errors = Track(), _Errors()
    run.events.touch(mode=0o600)
    reader = EventReader(run.events, run.events.stat().st_size)

    def follow() -> None:
        for event in reader.read():
            track.take(event)
            if observer is not None:
                observer.event(event, track)
        if observer is not None:
            observer.tick(track)

    def tick() -> None:
        secrets.listen()
        follow()

    def line(channel: Channel, text: str) -> None:
        said = secrets.without(text)
        run.append_log(said + "\n")
        errors.take(channel, said)

    with ExitStack() as stack:
        own = (session.become_password, session.vault_password)
        pipe, secrets = stack.enter_context(secrets_pipe(run.path, own))
        argv = playbook_argv(
            f"{COLLECTION}.{name}",
            session.reach,
            inventories=[*session.inventories(), *([overlay] if overlay is not None else [])],
            become_password=stack.enter_context(password_pipe(run.path, "become", session.become_password)),
            vault_password=stack.enter_context(password_pipe(run.path, "vault", session.vault_password)),
            variables=run.write(f"{name}-variables.json", variables) if variables else None,
            limit=SELECTED if overlay is not None else None,
            check=check,
            diff=diff,
        )
        run.append_log(f"==== {name}\n")
        finished = stream(
            argv,
            env={"GPUSETUP_PID": str(os.getpid()), SECRETS: str(pipe)}
            | ansible_environment(
                session.environment,
                collections=session.collections,
                package=_PACKAGE,
                events=run.events,
                configured=_configured(session.environment),
            ),
            deadline=lambda: deadline * track.waves,
            on_line=line,
            on_tick=tick,
            on_interrupt=None if observer is None else lambda: observer.stopping(track),
        )
    follow()
    if not track.hosts and not finished.interrupted:
        raise _nothing_happened(session, finished, errors)
    if not track.ended and not finished.interrupted:
        _cut_short(track, finished, errors)
    return PlaybookRun(name, finished, track)


class _Errors:
    """What Ansible itself complained about."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tail: list[str] = []

    def take(self, channel: Channel, text: str) -> None:
        self.tail = [*self.tail[-19:], text]
        if channel == "err" and text.strip():
            self.lines = [*self.lines[-19:], text]

    def text(self) -> str:
        """Return its error lines, or the last lines of all."""
        marked = [line for line in self.lines if "ERROR" in line]
        return "\n".join(marked or self.lines[-6:] or self.tail[-6:]).strip()


def _nothing_happened(session: Session, finished: Finished, errors: _Errors) -> BadInputError:
    inventory = session.reach.inventory or "this machine"
    if finished.timed_out:
        message = f"Ansible reached no host within {finished.seconds:.0f} s"
    elif finished.code == 0:
        limited = f" that match --limit {session.reach.limit}" if session.reach.limit else ""
        message = f"{inventory} has no hosts{limited}"
    else:
        message = f"Ansible could not start (exit {finished.code})"
    return BadInputError(
        "GS-407",
        message,
        path=session.reach.inventory or "",
        context=errors.text(),
        hint=f"check it with: ansible-inventory -i {inventory} --graph; full log: {session.run.log}",
    )


def _cut_short(track: Track, finished: Finished, errors: _Errors) -> None:
    """Give every host without a verdict one: Ansible ended before it said how it went."""
    why = "exceeded its time limit" if finished.timed_out else f"ended early (exit {finished.code})"
    for host in track.hosts.values():
        if host.failure is None:
            host.failure = Failure(host.task or "between tasks", f"Ansible {why}: {errors.text()}".rstrip(": "))


def _configured(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return what the ansible.cfg in force sets, looked for where Ansible looks."""
    places = (
        Path(environment["ANSIBLE_CONFIG"]) if environment.get("ANSIBLE_CONFIG") else None,
        Path.cwd() / "ansible.cfg",
        Path(environment.get("HOME", "/")) / ".ansible.cfg",
        Path("/etc/ansible/ansible.cfg"),
    )
    for place in places:
        if place is not None and place.is_file() and os.access(place, os.R_OK):
            parser = configparser.RawConfigParser(strict=False)
            try:
                parser.read(place, encoding="utf-8")
            except (configparser.Error, UnicodeDecodeError):
                return frozenset()
            return frozenset((section, key) for section in parser.sections() for key in parser[section])
    return frozenset()
