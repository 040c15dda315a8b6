"""Run a playbook: follow its events and return what became of each host."""

import configparser
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from gpusetup.content import COLLECTION
from gpusetup.drive.argv import Reach, ansible_environment, playbook_options
from gpusetup.drive.events import Event, EventReader, Failure, HostProgress, Track
from gpusetup.drive.fork_server import ForkServer
from gpusetup.drive.inventory import SELECTED, examine, write_local_inventory
from gpusetup.drive.inventory_memory import TYPED, InventoryMemory
from gpusetup.drive.parent import ENVIRONMENT as PARENT
from gpusetup.drive.rundir import RunDirectory, state_home
from gpusetup.drive.runner import Channel, Finished, Process, stream_all
from gpusetup.drive.secrets import ENVIRONMENT as SECRETS
from gpusetup.drive.secrets import password_pipe, secrets_pipe
from gpusetup.drive.shards import Shards
from gpusetup.errors import BadInputError
from gpusetup.model.request import SITE_FILE
from gpusetup.model.variables import RoleVariables

_PACKAGE = Path(__file__).resolve().parents[1]
KNOWN_HOSTS = "known_hosts"
"""The file of confirmed host keys, in the folder of gpusetup's state."""
ANSIBLE = (sys.executable, "-m", "ansible", "playbook")
"""ansible-playbook by our own interpreter."""


class Observer(Protocol):
    """Receives the events of a playbook."""

    def event(self, event: Event, track: Track) -> None:
        """Called for each event, after the track has taken it."""

    def tick(self, track: Track) -> None:
        """Called several times a second."""

    def stopping(self, track: Track) -> None:
        """Called when the user presses Ctrl-C."""


@dataclass(frozen=True)
class Session:
    """What all playbooks of one run share."""

    run: RunDirectory
    collections: Path
    reach: Reach
    environment: Mapping[str, str]
    become_password: str | None = field(default=None, repr=False)
    vault_password: str | None = field(default=None, repr=False)
    command: str = ""
    """The command line, for the audit log."""
    warn: Callable[[str], None] = lambda _text: None
    """Shows a warning about the inventory."""
    memory: InventoryMemory = field(default_factory=InventoryMemory, repr=False, compare=False)
    server: ForkServer = field(default_factory=ForkServer, repr=False, compare=False)

    def inventories(self) -> list[Path | str]:
        """Return the given inventory, or one of this machine only."""
        if self.reach.inventory is None:
            return [write_local_inventory(self.run.path / "inventory")]
        if "," not in self.reach.inventory and not Path(self.reach.inventory).exists():
            raise BadInputError("GS-406", f"inventory not found: {self.reach.inventory}", path=self.reach.inventory)
        if "," not in self.reach.inventory:
            examine(Path(self.reach.inventory))
        return [self.reach.inventory]

    def for_ansible(self) -> dict[str, str]:
        """Return the environment of every Ansible process of the run."""
        return ansible_environment(
            self.environment, collections=self.collections, package=_PACKAGE, events=self.run.events,
            configured=_configured(self.environment), known_hosts=_known_hosts(self.environment),
        )  # fmt: skip

    def expect_playbooks(self) -> None:
        """Start the fork server early: it imports Ansible while gpusetup does other work."""
        handed, descriptors = self.memory.to_processes(self.reach.inventory, self.reach.passthrough)
        self.server.begin({**self.for_ansible(), **handed}, descriptors)


@dataclass(frozen=True)
class PlaybookRun:
    """How a playbook ended."""

    name: str
    finished: Finished
    track: Track

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it."""
        return self.finished.interrupted

    def data(self, host: str, action: str) -> dict[str, Any] | None:
        """Return the result of one of our modules on a host."""
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
    at_once: bool = False,
    partial: bool = False,
) -> PlaybookRun:
    """Run a playbook, on the overlay's hosts if there is one. A failed host is data, not an exception.

    The deadline applies to as many hosts as Ansible has forks; a larger fleet gets a multiple of it. Many hosts have
    several Ansible processes (`gpusetup.drive.shards`), unless `at_once` asks for one. Ctrl-C raises KeyboardInterrupt;
    with `partial` the run is returned as far as it came.
    """
    run, track = session.run, Track()
    errors: dict[int, _Errors] = {}
    ended: dict[int, Finished] = {}
    run.events.touch(mode=0o600)
    reader = EventReader(run.events, run.events.stat().st_size)
    told = run.write(f"{name}-variables.json", variables) if variables else None

    def follow() -> None:
        for event in reader.read():
            track.take(event)
            shards.heard(event)
            if observer is not None:
                observer.event(event, track)
        if observer is not None:
            observer.tick(track)

    with ExitStack() as stack:

        def begin(shard: int, own: Mapping[str, str]) -> Process:
            suffix = f"-{shard}" if shard else ""
            passwords = (session.become_password, session.vault_password)
            become, vault = (
                stack.enter_context(password_pipe(run.path, f"{word}{suffix}", password))
                for word, password in zip(("become", "vault"), passwords, strict=True)
            )
            pipe, secrets = stack.enter_context(secrets_pipe(run.path, passwords, suffix))
            complaints = errors.setdefault(shard, _Errors())

            def line(channel: Channel, text: str) -> None:
                said = secrets.without(text)
                run.append_log(said + "\n")
                complaints.take(channel, said)
                place = said.removeprefix(_UNREAD).split(" as an ")[0]
                new = place not in session.memory.unread and not place.endswith(f"/{SITE_FILE}")
                if said.startswith(_UNREAD) and new:
                    session.memory.unread.add(place)
                    why = f"ansible-inventory -i {quote(place)} --graph"
                    session.warn(f"{place} cannot be read, so its hosts are missing; see why: {why}")

            def tick() -> None:
                secrets.listen()
                follow()

            options = playbook_options(
                session.reach, inventories=[*session.inventories(), *([overlay] if overlay is not None else [])],
                become_password=become, vault_password=vault, variables=told,
                limit=SELECTED if overlay is not None else None, check=check,
            )  # fmt: skip
            run.append_log(f"==== {name}{f', part {shard + 1}' if shard else ''}\n")
            handed, descriptors = session.memory.to_processes(session.reach.inventory, session.reach.passthrough)
            argv = (*ANSIBLE, *options, f"{COLLECTION}.{name}")
            environment = {
                PARENT: str(os.getpid()),
                SECRETS: str(pipe),
                TYPED: str(int(session.memory.typed)),
                **session.for_ansible(),
                **own,
                **handed,
            }
            return Process(
                argv, env=environment, descriptors=descriptors,
                already=session.server.start(argv, environment, descriptors),
                deadline=lambda: deadline * track.waves(shard), on_line=line, on_tick=tick,
                on_interrupt=None if observer is None else lambda: observer.stopping(track),
            )  # fmt: skip

        shards = Shards(run.path, track, begin, forks=session.reach.forks, together=at_once)
        stream_all(shards.next, lambda process, finished: ended.update({shards.of[process]: finished}))
    follow()
    session.memory.typed |= name == "facts" and not any(host.roles for host in track.hosts.values())
    finished = next((ended[shard] for shard in sorted(ended) if not ended[shard].ok), ended[min(ended)])
    if not track.hosts and not finished.interrupted:
        raise _nothing_happened(session, finished, errors[0])
    for shard, how in ended.items():
        if shard not in track.ended and not finished.interrupted:
            _cut_short(map(track.host, track.shards.get(shard) or shards.hosts[shard]), how, errors[shard])
    if finished.interrupted and not partial:
        raise KeyboardInterrupt
    return PlaybookRun(name, finished, track)


_UNREAD = "[WARNING]: Unable to parse "
"""How Ansible begins to name a source of hosts that no plugin can read, such as a program of a cloud that fails."""


class _Errors:
    """The last error lines of Ansible itself."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tail: list[str] = []

    def take(self, channel: Channel, text: str) -> None:
        self.tail = [*self.tail[-19:], text]
        if (channel == "err" and text.strip()) or _is_error(text):  # at a terminal both channels are one
            self.lines = [*self.lines[-19:], text]

    def text(self) -> str:
        """Return the error lines, else the last lines of output; cut very long ones."""
        marked = [line for line in self.lines if _is_error(line)]
        return "\n".join(line[:500] for line in (marked or self.lines[-6:] or self.tail[-6:])).strip()


def _is_error(line: str) -> bool:
    """Return whether a line says why Ansible cannot go on: also of a program that should have listed the hosts."""
    return re.search("ERROR|: error: |with '?script'? plugin: ", line) is not None


def _nothing_happened(session: Session, finished: Finished, errors: _Errors) -> BadInputError:
    inventory = session.reach.inventory or "this machine"
    if finished.timed_out:
        message = f"Ansible reached no host within {finished.seconds:.0f} s"
    elif finished.code == 0 or "leaves us with no hosts" in errors.text():
        limited = f" that match --limit {session.reach.limit}" if session.reach.limit else ""
        message = f"{inventory} has no hosts{limited}"
    else:
        message = f"Ansible could not start (exit {finished.code})"
    return BadInputError(
        "GS-407", message, path=session.reach.inventory or "", context=errors.text(),
        hint=f"check it with: ansible-inventory -i {inventory} --graph; full log: {session.run.log}",
    )  # fmt: skip


def _cut_short(hosts: Iterable[HostProgress], finished: Finished, errors: _Errors) -> None:
    """Record a failure for each host without one: Ansible ended before it reported a result."""
    why = "exceeded its time limit" if finished.timed_out else f"ended early (exit {finished.code})"
    for host in hosts:
        if host.failure is None:
            host.failure = Failure(host.task or "between tasks", f"Ansible {why}: {errors.text()}".rstrip(": "))


def _known_hosts(environment: Mapping[str, str]) -> Path | None:
    """Return the file of `gpusetup fleet known-hosts`, unless its path has characters that ssh's list cannot hold."""
    path = state_home(environment) / KNOWN_HOSTS
    return path if path.is_file() and not set(str(path)) & set(" \t'\"\\%") else None


def _configured(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
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
