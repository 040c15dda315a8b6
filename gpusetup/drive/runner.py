"""Start processes: with an argument list, an explicit environment and a deadline, and leave none behind.

Each process gets its own session. Ansible's workers open further sessions, so a kill walks the process tree instead of
relying on the process group.
"""

from __future__ import annotations

import json
import math
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from gpusetup.drive.fork_child import Child


Channel = Literal["out", "err"]

_TICK = 0.2
_GRACE = 10.0
_LINE_LIMIT = 4 * 1024 * 1024
_CAPTURE_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True)
class Finished:
    """How a process ended. `code` is negative after a signal, as in subprocess."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float
    timed_out: bool = False
    interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended with 0, not by a deadline or an interruption."""
        return self.code == 0 and not self.timed_out and not self.interrupted

    def document(self) -> dict[str, Any] | None:
        """Return the JSON object on its last line of output, or None."""
        lines = self.out.strip().splitlines()
        try:
            found = parsed(lines[-1]) if lines else None
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def parsed(text: str | bytes) -> Any:
    """Parse a host's JSON: lone surrogates, which are bytes of file names that are not UTF-8, become their escapes."""
    whole = text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass")
    found = json.loads(whole)
    return json.loads(escaped(found)) if "\\ud" in whole.lower() else found


def escaped(document: object) -> str:
    """Return a document as JSON in which lone surrogates are visible escapes, so that it can be written as UTF-8."""
    return re.sub("[\ud800-\udfff]", lambda one: f"\\\\u{ord(one[0]):04x}", json.dumps(document, ensure_ascii=False))


def run(argv: Sequence[str], *, env: Mapping[str, str], deadline: float, stdin: bytes | None = None) -> Finished:
    """Run a process to its end and return its output. The deadline kills it; Ctrl-C stops it and is raised again."""
    lines: dict[Channel, list[str]] = {"out": [], "err": []}
    room = _CAPTURE_LIMIT

    def keep(channel: Channel, line: str) -> None:
        nonlocal room
        room -= len(line)
        if room > 0:
            lines[channel].append(line)

    finished = end_of(Process(argv, env=env, deadline=deadline, stdin=stdin, on_line=keep))
    if finished.interrupted:
        raise KeyboardInterrupt
    return Finished(
        argv=finished.argv, code=finished.code, out="".join(line + "\n" for line in lines["out"]),
        err="".join(line + "\n" for line in lines["err"]), seconds=finished.seconds, timed_out=finished.timed_out,
    )  # fmt: skip


def end_of(process: Process) -> Finished:
    """Run a process to its end, alone.

    The first Ctrl-C sends SIGINT and gives the process its grace, the second one kills it. Both return with
    `interrupted` set, so that the caller can report how far it came.
    """
    waiting, ended = [process], []
    stream_all(lambda _running: waiting.pop() if waiting else None, lambda _process, how: ended.append(how))
    return ended[0]


def stream_all(begin: Callable[[list[Process]], Process | None], on_end: Callable[[Process, Finished], None]) -> None:
    """Run several processes at once, each as `end_of` does, until `begin` returns no more.

    `begin` gets the running processes and is called while they run. After Ctrl-C it is not called again.
    """
    running: list[Process] = []
    asking = True
    while True:
        try:
            while asking and (process := begin(running)) is not None:
                running.append(process)
            if not running:
                return
            for process in tuple(running):
                if process.turn(_TICK / len(running)):
                    on_end(process, process.ended())
                    running.remove(process)
        except KeyboardInterrupt:  # noqa: PERF203 - it is the loop that goes on
            if not running:
                raise
            asking = False
            for number, process in enumerate(running):
                process.interrupt(tell=not number)
        except BaseException:  # a listener failed, such as a log on a full disk: do not leave them running
            for process in running:
                process.kill()
            raise


class Process:
    """One process, its two output channels, and its deadline."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        deadline: float | Callable[[], float],
        on_line: Callable[[Channel, str], None],
        stdin: bytes | None = None,
        on_tick: Callable[[], None] | None = None,
        on_interrupt: Callable[[], None] | None = None,
        grace: float = _GRACE,
        descriptors: Collection[int] = (),
        already: Child | None = None,
    ) -> None:
        self.argv = tuple(argv)
        self.started = time.monotonic()
        self.deadline, self.patience = deadline, math.inf
        self.grace = grace
        self.on_line, self.on_tick, self.on_interrupt = on_line, on_tick, on_interrupt
        self.timed_out = self.interrupted = self.stopping = False
        self.partial: dict[Channel, bytearray] = {"out": bytearray(), "err": bytearray()}
        self.family: set[int] = set()
        try:
            self.process: subprocess.Popen[bytes] | Child = already or subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, env=dict(env), start_new_session=True, pass_fds=tuple(descriptors),
            )  # fmt: skip
        except OSError as error:
            raise BadInputError("GS-401", f"cannot start {self.argv[0]}: {error.strerror}") from error
        if isinstance(self.process, subprocess.Popen) and stdin is not None:
            _feed(self.process, stdin)
        self.selector = selectors.DefaultSelector()
        for channel, pipe in (("out", self.process.stdout), ("err", self.process.stderr)):
            self.selector.register(cast("IO[bytes]", pipe), selectors.EVENT_READ, channel)

    def ended(self) -> Finished:
        """Flush and close its channels; return how it ended."""
        self._flush("out")
        self._flush("err")
        self.selector.close()
        for pipe in (self.process.stdout, self.process.stderr):
            cast("IO[bytes]", pipe).close()
        if self.interrupted:
            self.kill()
        return Finished(
            argv=self.argv, code=self.process.wait(), out="", err="", seconds=time.monotonic() - self.started,
            timed_out=self.timed_out, interrupted=self.interrupted,
        )  # fmt: skip

    def turn(self, seconds: float) -> bool:
        """Read output for up to `seconds`; return whether the process has ended."""
        self._read(seconds)
        if self.on_tick is not None:
            self.on_tick()
        if self.process.poll() is not None:
            # A grandchild (an SSH master) may keep a channel open: read only what is there now.
            while self._read(0):
                pass
            return True
        deadline = self.deadline() if callable(self.deadline) else self.deadline
        if time.monotonic() >= min(self.started + deadline, self.patience):
            self.timed_out = self.timed_out or not self.interrupted
            self.kill()
        elif not self.selector.get_map():
            with suppress(subprocess.TimeoutExpired, TimeoutError):
                self.process.wait(timeout=seconds)
        return False

    def _read(self, seconds: float) -> bool:
        """Read what arrives within some seconds; return whether anything did."""
        ready = self.selector.select(seconds) if self.selector.get_map() else []
        for key, _ in ready:
            data = os.read(key.fd, 65536)
            if data:
                self._take(key.data, data)
            else:
                self.selector.unregister(key.fileobj)
        return bool(ready)

    def _take(self, channel: Channel, data: bytes) -> None:
        partial = self.partial[channel]
        partial += data
        if b"\n" in data:
            *whole, rest = bytes(partial).split(b"\n")
            partial[:] = rest
            for line in whole:
                self.on_line(channel, line.decode("utf-8", "replace").rstrip("\r"))
        if len(partial) > _LINE_LIMIT:
            self._flush(channel)

    def _flush(self, channel: Channel) -> None:
        if self.partial[channel]:
            self.on_line(channel, self.partial[channel].decode("utf-8", "replace"))
            self.partial[channel].clear()

    def interrupt(self, *, tell: bool = True) -> None:
        """Send SIGINT; the second time, kill it."""
        if self.interrupted:
            self.kill()
            return
        self.interrupted = True
        self.patience = time.monotonic() + self.grace
        self.family |= descendants([self.process.pid])
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)
        if tell and self.on_interrupt is not None:
            self.on_interrupt()

    def kill(self) -> None:
        """Kill it and everything that it started."""
        end_all(self.family if self.process.poll() is not None else {self.process.pid, *self.family})
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Running:
    """A background process; its owner must call `end`."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes = b"") -> None:
        try:
            self.process = subprocess.Popen(
                tuple(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(env),
                start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise BadInputError("GS-401", f"cannot start {argv[0]}: {error.strerror}") from error
        pipes = (self.process.stdin, self.process.stdout, self.process.stderr)
        self.input, self.out, self.err = (cast("IO[bytes]", pipe) for pipe in pipes)
        for pipe in (self.input, self.out, self.err):
            os.set_blocking(pipe.fileno(), False)
        self._waiting = stdin

    def send(self) -> bool:
        """Write the rest of its standard input, which stays open; return whether all of it is written."""
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self.input.fileno(), self._waiting) :]
        except BlockingIOError:
            return False
        except OSError:
            self._waiting = b""  # it has ended, which its other pipes show
        return True

    @staticmethod
    def read(pipe: IO[bytes]) -> bytes | None:
        """Return the available bytes; None at the end of the pipe."""
        try:
            return os.read(pipe.fileno(), 262144) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self.process.poll()

    def end(self) -> None:
        """Kill it and its process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pipe in (self.input, self.out, self.err):
            with suppress(OSError):
                pipe.close()
        with suppress(subprocess.TimeoutExpired):  # a process stuck in the kernel stays
            self.process.wait(1)


def filtering(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a filter with two pipes in our environment; the caller ends it."""
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def serving(argv: Sequence[str], *, env: Mapping[str, str], descriptors: Collection[int]) -> None:
    """Start a server on one of these descriptors; it ends once the other side is closed."""
    subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(env),
        start_new_session=True, pass_fds=tuple(descriptors),
    )  # fmt: skip


def _feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write standard input from a thread: a child that does not read it must not block us."""
    pipe = cast("IO[bytes]", process.stdin)

    def write() -> None:
        with suppress(OSError):
            pipe.write(data)
        with suppress(OSError):
            pipe.close()

    threading.Thread(target=write, daemon=True).start()


_GONE_WITHIN = 2.0
"""Seconds to wait for killed processes; one that waits for a dead disk may never go."""


def descendants(roots: Iterable[int]) -> set[int]:
    """Return all descendants of these processes."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting.extend(new)
    return found


def end_all(roots: Iterable[int]) -> None:
    """Kill these processes and their descendants, and wait. They are stopped first, so that none can start another."""
    family: set[int] = set()
    new = set(roots)
    while new:
        _signal(new, signal.SIGSTOP)
        family |= new
        new = descendants(family) - family
    _signal(family, signal.SIGKILL)
    until = time.monotonic() + _GONE_WITHIN
    while any(map(_lives, family)) and time.monotonic() < until:
        time.sleep(0.005)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _lives(pid: int) -> bool:
    stat = _stat(pid)
    return bool(stat) and stat[0] not in "ZX"


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process is gone."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []
