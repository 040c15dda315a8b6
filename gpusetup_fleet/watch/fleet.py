"""All watched hosts: one loop over their pipes, which no host can block."""

import base64
import json
import resource
import selectors
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from gpusetup.content import host_code
from gpusetup.drive.events import HostProgress
from gpusetup.drive.playbook import Observer, Session, run_playbook
from gpusetup.drive.runner import Running
from gpusetup.errors import BadInputError
from gpusetup.model import UNDECODED
from gpusetup_fleet.model.watch import Look, State
from gpusetup_fleet.ssh import Route, route_of

_GIVE_UP = 30.0
"""Seconds without a line after which the connection is replaced."""
_WAITS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
_LINE_LIMIT = 4 << 20
_DECODER = msgspec.json.Decoder(Look)


class Link:
    """A host and the connection to it. All times are those of `clock`."""

    def __init__(self, route: Route, every: float, clock: Callable[[], float]) -> None:
        self.host, self.route, self.every, self.clock = route.host, route, every, clock
        self.running: Running | None = None
        self.look: Look | None = None
        self.looks = 0
        self.seen: float | None = None
        """The time of the last figures."""
        self.heard = clock()
        """The time of the last line, or of the beginning of the connection."""
        self.stuck: Look | None = None
        self.reason = route.problem
        self.next_try = clock()
        self.failures = 0
        self._rest = b""
        self._words: list[str] = []

    @property
    def state(self) -> State:
        """The state of the host."""
        if self.route.problem:
            return "refused"
        if self.running is None:
            return "down" if self.reason else "waiting"
        if self.clock() - self.heard > self.patience and (self.look is not None or self.stuck is not None):
            return "silent"
        if self.stuck is not None:
            return "stuck"
        return "connecting" if self.looks == 0 else "live"

    @property
    def patience(self) -> float:
        """Seconds without a line after which a host is silent."""
        return max(3 * self.every, self.every + 5.0)

    @property
    def age(self) -> float | None:
        """Seconds since the last figures."""
        return None if self.seen is None else self.clock() - self.seen

    def begin(self, running: Running) -> None:
        """Set the process of a new connection."""
        self.running, self.heard = running, self.clock()
        self.stuck, self.looks, self._rest, self._words = None, 0, b"", []

    def take(self, data: bytes) -> int:
        """Read the lines in `data`; return how many held figures."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        before = self.looks
        for line in lines:
            self._line(line)
        if len(self._rest) > _LINE_LIMIT:
            self._rest = b""
        return self.looks - before

    def say(self, data: bytes) -> None:
        """Keep the last lines that are not figures: they tell why a connection ends."""
        words = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
        self._words = [*self._words, *(line for line in words if line)][-3:]

    def drop(self, reason: str = "") -> None:
        """End the connection and plan the next; the wait grows with each one without figures."""
        running, self.running = self.running, None
        code = None
        if running is not None:
            code = running.code()
            running.end()
        self.reason = reason or _why(self._words, code)
        self.failures = 0 if self.looks else self.failures + 1
        wait = _WAITS[min(self.failures, len(_WAITS) - 1)]
        # Hosts that went down together are not all connected at the same time.
        self.next_try = self.clock() + wait * (1.0 + (hash(self.host) % 100) / 400)
        self.looks, self.stuck = 0, None

    @property
    def is_lost(self) -> bool:
        """Whether nothing arrived for so long that the connection is to be replaced."""
        return self.running is not None and self.clock() - self.heard > max(_GIVE_UP, 2 * self.patience)

    def _line(self, line: bytes) -> None:
        try:
            look = _DECODER.decode(line)
        except UNDECODED:
            self.say(line)  # a greeting, or why no program could be started
            return
        self.heard = self.clock()
        if look.stuck is not None:
            self.stuck = look
            return
        self.look, self.stuck, self.seen, self.reason = look, None, self.heard, ""
        self.looks += 1


def _why(words: list[str], code: int | None) -> str:
    told = [line for line in words if not line.startswith(("Warning: Permanently added", "Pseudo-terminal"))]
    if told:
        return " ".join(told[-1].removeprefix("ssh: ").split())[:200]
    return "the connection ended" if code in (None, 0, 255) else f"the connection ended (exit {code})"


_ROLE, _START, _AGENT = "gpu_monitoring", "gpu_read/unpacked.py", "gpu_read/agent.py"


def sent(every: float) -> bytes:
    """Return the line with the packed agent that `gpusetup_fleet.ssh.BOOT` reads."""
    programs = host_code("programs")
    start = programs.texts(_ROLE, _START)[_START] + "\nstart(*L[1:])\n"
    files = programs.texts(_ROLE, _AGENT)
    texts = {_module(place): text for place, text in files.items() if not place.endswith("/__init__.py")}
    packed = zlib.compress(json.dumps([start, texts, _module(_AGENT), {"every": every}]).encode())
    return base64.b64encode(packed) + b"\n"


def _module(place: str) -> str:
    return place.removesuffix(".py").replace("/", ".")


ACTION = "gpu_reach"
_DEADLINE = 300.0


def routes(session: Session, observer: Observer | None = None) -> list[Route]:
    """Return how Ansible would connect to each host of the inventory; it does not connect."""
    run = run_playbook(session, "reach", deadline=_DEADLINE, observer=observer)
    return [_route(host) for host in run.track.hosts.values()]


def _route(host: HostProgress) -> Route:
    if host.failure is not None:
        return Route(host.name, problem=" ".join(host.failure.message.split())[:300])
    answer = host.data.get(ACTION)
    return route_of(host.name, answer) if answer else Route(host.name, problem="Ansible left it out")


_PIPES, _OTHERS = 3, 256
_AT_ONCE = 25
"""The most connections to begin at the same time: jump hosts refuse more."""


class Fleet:
    """All connections: `turn` begins them, reads from them, and replaces those that end or fall silent."""

    def __init__(
        self,
        routes: Iterable[Route],
        every: float,
        environment: Mapping[str, str],
        *,
        at_once: int = _AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every, self.clock, self.at_once = every, clock, at_once
        self.links = [Link(route, every, clock) for route in routes]
        _raise_file_limit(len(self.links))
        self._environment = environment
        self._program = sent(every)
        self._selector = selectors.DefaultSelector()

    def close(self) -> None:
        """End every connection."""
        for link in self.links:
            if link.running is not None:
                self._forget(link)
                link.running.end()
                link.running = None
        self._selector.close()

    def listen(self, file: Any, answer: Callable[[], None]) -> None:
        """Call `answer` when the file, such as the keyboard, has input."""
        self._selector.register(file, selectors.EVENT_READ, (None, answer))

    def turn(self, seconds: float) -> bool:
        """Read what arrives within these seconds and make connections that are due; return True if figures arrived."""
        came = 0
        for key, events in self._selector.select(seconds):
            link, what = key.data
            if link is None:
                what()
            elif events & selectors.EVENT_WRITE:
                if link.running is not None and link.running.send():
                    self._selector.unregister(key.fileobj)
            else:
                came += self._read(link, what)
        self._connect()
        return came > 0

    def next_due(self) -> float:
        """Return the seconds until the next connection is due."""
        now = self.clock()
        return max(0.05, min((link.next_try - now for link in self._idle()), default=1.0))

    def _idle(self) -> list[Link]:
        return [link for link in self.links if link.running is None and not link.route.problem]

    def _connect(self) -> None:
        for link in self.links:
            if link.is_lost:
                self._drop(link, "no answer")
        now = self.clock()
        under_way = sum(link.state == "connecting" for link in self.links)
        for link in self._idle():
            if link.next_try <= now and under_way < self.at_once:
                under_way += self._start(link)

    def _start(self, link: Link) -> int:
        try:
            running = Running(link.route.argv, env=self._environment, stdin=self._program)
        except BadInputError as error:
            link.drop(error.message)
            return 0
        link.begin(running)
        self._selector.register(running.out, selectors.EVENT_READ, (link, "out"))
        self._selector.register(running.err, selectors.EVENT_READ, (link, "err"))
        if not running.send():
            self._selector.register(running.input, selectors.EVENT_WRITE, (link, "in"))
        return 1

    def _read(self, link: Link, channel: str) -> int:
        running = link.running
        if running is None:
            return 0
        pipe = running.out if channel == "out" else running.err
        data = running.read(pipe)
        if data is None:
            self._selector.unregister(pipe)
            if channel == "out":
                self._drop(link)
            return 0
        if channel == "err":
            link.say(data)
            return 0
        return link.take(data)

    def _drop(self, link: Link, reason: str = "") -> None:
        if link.running is not None and not reason:
            link.say(link.running.read(link.running.err) or b"")
        self._forget(link)
        link.drop(reason)

    def _forget(self, link: Link) -> None:
        if link.running is not None:
            for pipe in (link.running.input, link.running.out, link.running.err):
                with suppress(KeyError, ValueError):
                    self._selector.unregister(pipe)


def _raise_file_limit(hosts: int) -> None:
    """Raise the limit of open files to what all pipes need, as far as this user may: 1,024 files are 250 hosts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _PIPES * hosts + _OTHERS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
