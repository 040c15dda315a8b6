"""Follow the event stream of a playbook, and derive each host's progress from it."""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from msgspec import ValidationError, convert
from msgspec.structs import replace

from gpusetup.drive.runner import parsed
from gpusetup.model.lifecycle import Trouble

Event = dict[str, Any]
_NOTHING_DONE = frozenset({"GS-411", "GS-421", "GS-422", "GS-423", "GS-438", "GS-452"})
"""References of refusals that a host gives before the step that stops changes anything."""


class EventReader:
    """Follows a growing file of JSON lines; skips lines that are not events."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.rest = b""

    def read(self) -> list[Event]:
        """Return the events that came since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [event for line in lines if (event := self._event(line)) is not None]

    def _event(self, line: bytes) -> Event | None:
        try:
            event = parsed(line)
        except (ValueError, RecursionError):
            return None
        return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


@dataclass(frozen=True)
class Failure:
    """Where and why a host stopped. `document`: the module's own explanation, if any."""

    task: str
    message: str
    unreachable: bool = False
    refused: bool = False
    """Whether its name or address is invalid, so that it was not contacted."""
    document: dict[str, Any] | None = None

    @property
    def trouble(self) -> Trouble:
        """The failure as reports show it."""
        found = Trouble()
        with suppress(ValidationError):  # a host may answer anything
            found = convert(self.document or {}, Trouble)
        return found if found.message else replace(found, message=" ".join(self.message.split())[:2000])

    def state(self, changed: int = 0) -> Literal["unreachable", "refused", "failed"]:
        """Return the state of the host, on which `changed` steps before this one changed something."""
        if self.unreachable:
            return "unreachable"
        return "refused" if not changed and self.trouble.reference in _NOTHING_DONE else "failed"

    def way_out(self, inventory: str) -> str:
        """Return what to do about it."""
        text, where = self.message.lower(), quote(inventory or "INVENTORY")
        if self.unreachable and ("host key verification failed" in text or "identification has changed" in text):
            return f"see the keys that hosts show, and keep those that are proven: gpusetup fleet known-hosts {where}"
        if self.unreachable:
            return f"check with: ansible all -i {where} -m ping"
        if "pyenv: " in text or "asdf: " in text:
            real = "-e ansible_python_interpreter=/usr/bin/python3"
            return f"a version manager's shim answered, and it has no such Python; name a real one: {real}"
        if "must have a tty" in text:
            return "the host's sudoers file has requiretty: switch it off for this user"
        if re.search(r"sudo: (?:permission denied|(?:command )?not found)", text):
            return "this user cannot run sudo on the host: install it, or log in as root: --user root"
        if "incorrect sudo password" in text:
            return "sudo on the host refuses this password: give the one of the user that gpusetup logs in as"
        if "sudo" in text or "become" in text or "password" in text:
            return "give the sudo password with -K, or allow the user passwordless sudo"
        if "python" in text:
            return "the host needs Python 3.6 or newer; set ansible_python_interpreter to one"
        return f"see what the login prints: ansible all -i {where} -m raw -a id"


@dataclass
class HostProgress:
    """One host in one playbook."""

    name: str
    connection: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    rivals: dict[str, list[str]] = field(default_factory=dict)
    """Variables about which groups of equal rank differ, with the groups: first the one that counts."""
    roles: bool = False
    """Whether its inventory sets variables of our roles."""
    problem: str = ""
    task: str = ""
    task_since: float = 0.0
    detail: str = ""
    ok: int = 0
    changed: int = 0
    tasks: int = 0
    failure: Failure | None = None
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last result of each of our modules, by action name."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time by role, or by action outside roles."""


class Track:
    """The state of a playbook's hosts so far."""

    def __init__(self) -> None:
        self.hosts: dict[str, HostProgress] = {}
        self.tasks: dict[str, Event] = {}
        self.forks = 0
        self.ended: set[int] = set()
        """The shards that have ended."""
        self.shards: dict[int, tuple[str, ...]] = {}
        """The hosts of each Ansible process; only large fleets have several."""
        self.rest: tuple[str, ...] = ()
        """Hosts that the first process leaves to others."""

    def waves(self, shard: int) -> int:
        """Return how many rounds of forks a shard's hosts need."""
        hosts = len(self.shards.get(shard, ()))
        return -(-hosts // self.forks) if hosts and self.forks else 1

    def take(self, event: Event) -> None:
        """Update the state from one event."""
        kind = event["event"]
        if kind == "hosts":
            self._take_hosts(event)
        elif kind == "task":
            self.tasks[str(event.get("task"))] = event
        elif kind == "end":
            self.ended.add(int(event.get("shard", 0)))
        elif isinstance(event.get("host"), str):
            self._take_host(kind, event, self.host(event["host"]))

    def host(self, name: str) -> HostProgress:
        """Return the state of a host; make it if it is new."""
        return self.hosts.setdefault(name, HostProgress(name))

    def _take_hosts(self, event: Event) -> None:
        self.forks = int(event.get("forks") or 0)
        self.shards[int(event.get("shard", 0))] = tuple(event.get("hosts", {}))
        self.rest += tuple(event.get("rest", ()))
        for name, said in event.get("hosts", {}).items():
            host = self.host(name)
            host.connection = said.get("connection", {})
            host.variables = said.get("variables", {})
            host.groups = tuple(said.get("groups", ()))
            host.rivals = said.get("rivals", {})
            host.problem = said.get("problem", "")
            host.roles = bool(said.get("roles"))
            if said.get("refused"):
                host.failure = Failure("inventory", str(said["refused"]), refused=True)
        for name in self.rest:  # in inventory order, whichever shard reports first
            self.host(name)

    def _take_host(self, kind: str, event: Event, host: HostProgress) -> None:
        task = self.tasks.get(str(event.get("task")), {})
        name = str(event.get("name") or task.get("name", ""))
        action = str(task.get("action", ""))
        if kind == "begin":
            host.task, host.task_since, host.detail = name, float(event.get("time", 0.0)), ""
            return
        data = event.get("data")
        if kind in {"poll", "retry"}:
            host.detail = _progress((data or {}).get("progress")) or host.detail
            return
        host.tasks += 1
        phase = str(task.get("role") or action)
        host.seconds[phase] = host.seconds.get(phase, 0.0) + float(event.get("seconds", 0.0))
        if isinstance(data, dict):
            host.data[action] = data
        if kind == "changed":
            host.changed += 1
        elif kind == "ok":
            host.ok += 1
        elif kind in {"failed", "unreachable"}:
            message = "the task's output is hidden" if event.get("hidden") else str(event.get("message", ""))
            host.failure = Failure(name, message, kind == "unreachable", document=event.get("failure"))
        host.task, host.detail = "", ""


def _progress(told: Any) -> str:
    """Return the progress of a long step: what it does now, and its percentage."""
    if isinstance(told, dict):
        percent = f"{told['percent']} % " if told.get("percent") is not None else ""
        return f"{told.get('step', '')} {percent}{told.get('message', '')}".strip()
    return str(told or "")
