"""Progress of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from gpusetup.drive.causes import common, counted
from gpusetup.model import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from gpusetup.drive.events import Event, HostProgress, Track
    from gpusetup.drive.playbook import Observer

_SAY_AGAIN = 30.0
_ROWS = 30
_MANY = 50
"""From this many hosts on, print hosts per step instead of a line per host."""
_TOLD = 3
"""Hosts printed per cause; of unreachable hosts one, because the final report names the others."""
_UNREACHABLE = "cannot be reached: "


@contextmanager
def watch(out: IO[str], *, phase: str) -> Iterator[Observer]:
    """Yield the observer for this output: a live table on a terminal."""
    if out.isatty():
        live = _LiveProgress(out, phase)
        with live.shown():
            yield live
    else:
        plain = PlainProgress(out)
        try:
            yield plain
        finally:
            plain.failures.end()


class _Failures:
    """Prints failures as they come: the first hosts of each cause, and at the end how many more there were."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.count: Counter[str] = Counter()

    def take(self, event: Event, host: HostProgress) -> None:
        """Print a failure."""
        message = host.failure.message.strip() if host.failure is not None else ""
        first = visible(message.splitlines()[0]) if message else ""
        unreachable = event["event"] == "unreachable"
        text = f"{_UNREACHABLE}{first}" if unreachable else f"FAILED {event.get('name')}: {first}"
        cause = common(text, host.name, str(host.connection.get("ansible_host") or ""))
        self.count[cause] += 1
        if self.count[cause] <= (1 if unreachable else _TOLD):
            self.say(f"{visible(host.name)}: {text}")

    def end(self) -> None:
        """Print how many further hosts had each cause."""
        for cause, count in self.count.items():
            untold = count - (1 if cause.startswith(_UNREACHABLE) else _TOLD)
            if untold > 0:
                self.say(f"{counted(untold, 'more host')}: {cause}")
        self.count.clear()


class PlainProgress:
    """Prints a line per change or failure, and a sign of life during long steps."""

    def __init__(self, out: IO[str]) -> None:
        self.out = out
        self.failures = _Failures(lambda text: print(text, file=out, flush=True))
        self.said: dict[str, float] = {}
        self.steps_said = time.time()

    def event(self, event: Event, track: Track) -> None:
        """Print what changed or failed."""
        kind, name = event["event"], str(event.get("host", ""))
        if kind == "begin":
            self.said[name] = time.time()
        elif kind == "changed" and len(track.hosts) < _MANY:
            self._say(name, f"{event.get('name')} ({float(event.get('seconds', 0)):.1f} s)")
        elif kind in {"failed", "unreachable"}:
            self.failures.take(event, track.host(name))

    def tick(self, track: Track) -> None:
        """Print every half minute that a long step is still running."""
        now = time.time()
        if len(track.hosts) >= _MANY:
            if now - self.steps_said >= _SAY_AGAIN:
                self.steps_said = now
                for _hosts, step, text in steps(track, now):
                    self._say(step, text)
            return
        for host in track.hosts.values():
            if host.task and now - self.said.get(host.name, now) >= _SAY_AGAIN:
                self.said[host.name] = now
                detail = f": {host.detail}" if host.detail else ""
                self._say(host.name, f"{host.task}{detail}, {now - host.task_since:.0f} s so far")

    def stopping(self, track: Track) -> None:
        """Print that the run stops, and how to stop at once."""
        busy = sum(1 for host in track.hosts.values() if host.task)
        self._say(
            "stopping", f"waiting for {counted(busy, 'host')} to finish their step; press Ctrl-C again to stop now"
        )

    def _say(self, who: str, text: str) -> None:
        print(visible(f"{who}: {text}"), file=self.out, flush=True)


class _LiveProgress:
    """A table of hosts that updates in place."""

    def __init__(self, out: IO[str], phase: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(file=out, highlight=False)
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.phase, self.drawn = phase, 0.0
        self.plain = PlainProgress(out)
        self.failures = _Failures(lambda text: self.console.print(text, markup=False))

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self.live:
            try:
                yield
            finally:
                self.failures.end()

    def event(self, event: Event, track: Track) -> None:
        """Print failures, which stay above the table."""
        if event["event"] in {"failed", "unreachable"}:
            self.failures.take(event, track.host(str(event["host"])))

    def tick(self, track: Track) -> None:
        """Redraw the table, no more often than it is shown."""
        if (now := time.monotonic()) - self.drawn >= 1 / self.live.refresh_per_second:
            self.drawn = now
            self.live.update(self._table(track))

    def stopping(self, track: Track) -> None:
        """Print that the run stops, and how to stop at once."""
        self.plain.stopping(track)

    def _table(self, track: Track) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        now = time.time()
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        busy = [host for host in track.hosts.values() if host.task]
        failed = sum(1 for host in track.hosts.values() if host.failure)
        counts = f"{counted(len(track.hosts), 'host')}, {len(busy)} busy, {failed} failed"
        grid.add_row(Text(self.phase, style="bold"), Text(counts if track.hosts else "Ansible starts"))
        if len(busy) > _ROWS:
            for _hosts, step, text in steps(track, now)[:_ROWS]:
                grid.add_row(Text(step), Text(text))
            return grid
        for host in busy:
            # The time comes first, since long lines are cut off at the end.
            step = visible(host.detail or host.task)
            grid.add_row(Text(visible(host.name)), Text(f"{now - host.task_since:4.0f} s  {step}"))
        return grid


def steps(track: Track, now: float) -> list[tuple[int, str, str]]:
    """Return per step: the number of hosts, the step, and a sentence with the slowest host."""
    at: dict[str, list[HostProgress]] = {}
    for host in track.hosts.values():
        if host.task:
            at.setdefault(host.task, []).append(host)
    found = []
    for step, hosts in at.items():
        slowest = min(hosts, key=lambda host: host.task_since)
        text = f"{counted(len(hosts), 'host')}, the longest {slowest.name} for {now - slowest.task_since:.0f} s"
        found.append((len(hosts), step, text))
    return sorted(found, reverse=True)
