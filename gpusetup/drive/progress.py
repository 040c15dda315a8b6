"""Who watches a run: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from gpusetup.drive.causes import common, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from gpusetup.drive.events import Event, HostProgress, Track
    from gpusetup.drive.playbook import Observer

_SAY_AGAIN = 30.0
_ROWS = 30
_MANY = 50
"""From so many hosts on nobody reads a line of each: it is told how many are at which step."""
_TOLD = 3
"""So many hosts are named for one cause; one that cannot be reached is told once, for the answer names the others."""
_UNREACHABLE = "cannot be reached: "


@contextmanager
def watch(out: IO[str], *, phase: str) -> Iterator[Observer]:
    """Return the right observer for this output; a terminal gets a live table."""
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
    """Failures as they come; one that many hosts have is told of a few, and at the end of how many."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.count: Counter[str] = Counter()

    def take(self, event: Event, host: HostProgress) -> None:
        """Tell a failure."""
        message = host.failure.message.strip() if host.failure is not None else ""
        first = message.splitlines()[0] if message else ""
        unreachable = event["event"] == "unreachable"
        text = f"{_UNREACHABLE}{first}" if unreachable else f"FAILED {event.get('name')}: {first}"
        cause = common(text, host.name, str(host.connection.get("ansible_host") or ""))
        self.count[cause] += 1
        if self.count[cause] <= (1 if unreachable else _TOLD):
            self.say(f"{host.name}: {text}")

    def end(self) -> None:
        """Tell of how many hosts nothing was told."""
        for cause, count in self.count.items():
            untold = count - (1 if cause.startswith(_UNREACHABLE) else _TOLD)
            if untold > 0:
                self.say(f"{counted(untold, 'more host')}: {cause}")
        self.count.clear()


class PlainProgress:
    """One line per thing that changed or failed, and a sign of life during long steps."""

    def __init__(self, out: IO[str]) -> None:
        self.out = out
        self.failures = _Failures(lambda text: print(text, file=out, flush=True))
        self.said: dict[str, float] = {}
        self.steps_said = time.time()

    def event(self, event: Event, track: Track) -> None:
        """Say what changed and what failed."""
        kind, name = event["event"], str(event.get("host", ""))
        if kind == "begin":
            self.said[name] = time.time()
        elif kind == "changed" and len(track.hosts) < _MANY:
            self._say(name, f"{event.get('name')} ({float(event.get('seconds', 0)):.1f} s)")
        elif kind in {"failed", "unreachable"}:
            self.failures.take(event, track.host(name))

    def tick(self, track: Track) -> None:
        """Say that a long step is still running, every half minute."""
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
        """Say that it stops, and how to stop at once."""
        busy = sum(1 for host in track.hosts.values() if host.task)
        self._say(
            "stopping", f"waiting for {counted(busy, 'host')} to finish their step; press Ctrl-C again to stop now"
        )

    def _say(self, who: str, text: str) -> None:
        print(f"{who}: {text}", file=self.out, flush=True)


class _LiveProgress:
    """A table of hosts that is drawn over itself."""

    def __init__(self, out: IO[str], phase: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(file=out, highlight=False)
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.phase = phase
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
        """Failures stay on the screen above the table."""
        if event["event"] in {"failed", "unreachable"}:
            self.failures.take(event, track.host(str(event["host"])))

    def tick(self, track: Track) -> None:
        """Draw it anew."""
        self.live.update(self._table(track))

    def stopping(self, track: Track) -> None:
        """Say that it stops, and how to stop at once."""
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
        counts = f"{len(track.hosts)} hosts, {len(busy)} busy, {failed} failed"
        grid.add_row(Text(self.phase, style="bold"), Text(counts))
        if len(busy) > _ROWS:
            for _hosts, step, text in steps(track, now)[:_ROWS]:
                grid.add_row(Text(step), Text(text))
            return grid
        for host in busy:
            grid.add_row(Text(host.name), Text(_doing(host, now)))
        return grid


def steps(track: Track, now: float) -> list[tuple[int, str, str]]:
    """Return how many hosts are at which step, the step, and a sentence that names who is there longest."""
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


def _doing(host: HostProgress, now: float) -> str:
    """Say what a host does; the time comes first, for the end of a long line is cut off."""
    elapsed = f"{now - host.task_since:4.0f} s"
    return f"{elapsed}  {host.detail or host.task}"
