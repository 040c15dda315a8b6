"""One watched host: its connection, its last figures, and its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpusetup.model.watch import Look

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.drive.route import Route
    from gpusetup.drive.runner import Running
    from gpusetup.model.watch import State

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

    # --- what it is ----------------------------------------------------------------------------------------------

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

    # --- what becomes of it --------------------------------------------------------------------------------------

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
        except msgspec.MsgspecError:
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
