"""The event stream of a playbook, read while it is written, and what it says about each host."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import convert
from msgspec.structs import replace

from gpusetup.model.run import Trouble

if TYPE_CHECKING:
    from pathlib import Path

Event = dict[str, Any]


class EventReader:
    """Follows a growing file of JSON lines; a torn or foreign line is passed over."""

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
            event = json.loads(line)
        except ValueError:
            return None
        return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


@dataclass(frozen=True)
class Failure:
    """Where and why a host stopped. `document` is the module's own explanation, when it gave one."""

    task: str
    message: str
    unreachable: bool = False
    refused: bool = False
    """Its name or address cannot be used: nobody spoke to it."""
    document: dict[str, Any] | None = None

    @property
    def trouble(self) -> Trouble:
        """Return what a report says of it."""
        found = convert(self.document or {}, Trouble)
        return found if found.message else replace(found, message=" ".join(self.message.split())[:2000])


@dataclass
class HostProgress:
    """One host in one playbook."""

    name: str
    connection: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    roles: bool = False
    """Somebody beside us sets variables of our roles for it."""
    problem: str = ""
    task: str = ""
    task_since: float = 0.0
    detail: str = ""
    ok: int = 0
    changed: int = 0
    tasks: int = 0
    failure: Failure | None = None
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Results of our own modules, by action name; the last one of each."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time by role (or action, outside roles)."""


class Track:
    """What is known about a playbook's hosts so far."""

    def __init__(self) -> None:
        self.hosts: dict[str, HostProgress] = {}
        self.tasks: dict[str, Event] = {}
        self.forks = 0
        self.ended: set[int] = set()
        """The shards that came to their end."""
        self.shards: dict[int, tuple[str, ...]] = {}
        """Which hosts each Ansible process works on; a fleet that is not large has one."""
        self.rest: tuple[str, ...] = ()
        """Hosts that the first process left to others."""

    def waves(self, shard: int) -> int:
        """How many times over a shard's hosts fill the places that Ansible has for them."""
        hosts = len(self.shards.get(shard, ()))
        return -(-hosts // self.forks) if hosts and self.forks else 1

    def take(self, event: Event) -> None:
        """Learn from one event."""
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
        """Return the record of a host, new when it was not heard of."""
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
            host.problem = said.get("problem", "")
            host.roles = bool(said.get("roles"))
            if said.get("refused"):
                host.failure = Failure("inventory", str(said["refused"]), refused=True)
        for name in self.rest:  # in the order of the inventory, whichever shard is the first to speak
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
    """Return how far a long step is: what it does at the moment, and the percentage of it."""
    if isinstance(told, dict):
        percent = f"{told['percent']} % " if told.get("percent") is not None else ""
        return f"{told.get('step', '')} {percent}{told.get('message', '')}".strip()
    return str(told or "")
