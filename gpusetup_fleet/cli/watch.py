"""Show all GPUs live: use, memory, power, heat, clocks and what lowers them, links, programs.

One SSH connection per host stays open, with Ansible's settings. A small reader runs on the host, needs no root and
leaves nothing behind. A host that hangs is shown with its age and reconnected. Without INVENTORY: this machine.

examples:
  gpusetup watch inventory.ini
  gpusetup watch inventory.ini --filter anna --sort memory
  gpusetup watch inventory.ini --csv gpus.csv --every 5
  gpusetup watch --once --json
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.cli import options, output
from gpusetup.cli.streams import end_with_reader, terminated_is_interrupted
from gpusetup.errors import BadInputError, Exit, gravest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gpusetup_fleet.ssh import Route
    from gpusetup_fleet.watch.fleet import Fleet, Link
    from gpusetup_fleet.watch.view import View

SORTS = ("name", "trouble", "util", "memory", "power", "temp")
_SLOWEST = 3600.0
_FASTEST = 0.2
_ANSWER = 30.0
"""Seconds that --once waits for hosts."""
_FRAME = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    group = parser.add_argument_group("view")
    group.add_argument(
        "--every", type=float, default=2.0, metavar="S", help="interval in seconds; default: %(default)g"
    )
    group.add_argument("--once", action="store_true", help="print once and exit")
    group.add_argument("--sort", choices=SORTS, default="name", help="highest first; default: %(default)s")
    group.add_argument(
        "--filter", action="append", default=[], metavar="WORD",
        help="only rows with this word: a host, state, user, command, container, …; repeatable",
    )  # fmt: skip
    group.add_argument("--csv", metavar="FILE", help="also append a row for each GPU and look (-: standard output)")
    options.add_output(parser)
    parser.add_argument(
        "--json", dest="format", action="store_const", const="json", help="one JSON document per line and look"
    )


def run(arguments: argparse.Namespace) -> Exit:
    """Watch until interrupted, or once."""
    from gpusetup_fleet.watch.figures import Filter
    from gpusetup_fleet.watch.fleet import Fleet
    from gpusetup_fleet.watch.view import View

    if not _FASTEST <= arguments.every <= _SLOWEST:
        raise BadInputError(
            "GS-921", f"--every takes {_FASTEST:g} to {_SLOWEST:g} seconds, not {arguments.every:g}", path="--every"
        )
    if arguments.out and arguments.format == "text" and not arguments.once:
        raise BadInputError(
            "GS-925",
            "--out needs --once or --json: the live view has no end",
            path="--out",
            hint=f"gpusetup watch --once --out {arguments.out}, or --csv {arguments.out} for a record",
        )
    if not arguments.once:
        end_with_reader()
    view = View(sort=arguments.sort, chosen=Filter(arguments.filter))
    every = min(arguments.every, 1.0) if arguments.once else arguments.every
    with ExitStack() as stack:
        record = _recorder(arguments, stack)
        more = {"at_once": arguments.forks} if arguments.forks else {}
        fleet = stack.enter_context(closing(Fleet(_routes(arguments), every, os.environ, **more)))
        stack.enter_context(terminated_is_interrupted())
        if arguments.once:
            return _once(arguments, fleet, view, record)
        if arguments.format == "json" or arguments.csv == "-":
            return _stream(arguments, fleet, record)
        if _has_screen():
            return _screen(fleet, view, record)
        return _lines(arguments, fleet, view, record)


def _routes(arguments: argparse.Namespace) -> list[Route]:
    from gpusetup.model.facts import LOCAL_NAME
    from gpusetup_fleet.ssh import local_route

    if arguments.inventory is None:
        return [local_route(LOCAL_NAME)]
    from gpusetup.cli.session import open_session
    from gpusetup.drive.progress import watch
    from gpusetup_fleet.watch.fleet import routes

    session = open_session(arguments)
    with watch(output.aside(), phase="inventory") as observer:
        return routes(session, observer)


class _Ticks:
    """Schedules the moments to record."""

    def __init__(self, every: float) -> None:
        self.every, self.next = every, time.monotonic() + every

    def due(self) -> bool:
        """Return whether the next moment has come; missed ones are skipped."""
        now = time.monotonic()
        if now < self.next:
            return False
        self.next = max(self.next + self.every, now)
        return True

    def left(self) -> float:
        """Seconds until the next."""
        return max(0.0, self.next - time.monotonic())


def _recorder(arguments: argparse.Namespace, stack: ExitStack) -> Callable[[list[Link]], None]:
    """Return a function that writes a moment as CSV: each look once, and the state of hosts that do not answer."""
    from gpusetup_fleet.watch.documents import COLUMNS, CsvFile, csv_lines, rows

    if arguments.csv is None:
        return lambda _: None
    add: Callable[[list[Any]], None]
    if arguments.csv == "-":
        _write(csv_lines([COLUMNS]))

        def add(lines: list[Any]) -> None:
            _write(csv_lines(lines))

    else:
        add = stack.enter_context(closing(CsvFile(arguments.csv))).add
    written: dict[str, Any] = {}

    def record(links: list[Link]) -> None:
        lines: list[Any] = []
        for link in links:
            if link.state in ("waiting", "connecting") or (
                link.state == "live" and written.get(link.host) is link.look
            ):
                continue
            written[link.host] = link.look
            lines += rows(link, time.time())
        if lines:
            add(lines)

    return record


def _once(arguments: argparse.Namespace, fleet: Fleet, view: View, record: Callable[[list[Link]], None]) -> Exit:
    """Wait for two looks of each host, which rates need, then print."""
    end = time.monotonic() + _ANSWER
    while not all(_settled(link) for link in fleet.links) and time.monotonic() < end:
        fleet.turn(min(0.2, fleet.next_due()))
    shown = _shown(fleet, view)
    record(shown)
    if arguments.csv != "-":
        output.write_answer(_answer(arguments, fleet, shown, view), arguments.out)
    return gravest([_exit_of(link) for link in fleet.links])


def _answer(arguments: argparse.Namespace, fleet: Fleet, shown: list[Link], view: View) -> str:
    if arguments.format == "json":
        from gpusetup_fleet.watch.documents import document

        return output.json_line(document(fleet.links, shown, time.time()))
    return view.listing(shown, _width())


def _settled(link: Link) -> bool:
    if link.state in ("refused", "stuck") or link.failures:
        return True
    return link.looks >= 2 or (link.look is not None and bool(link.look.error or not link.look.gpus))


def _exit_of(link: Link) -> Exit:
    known = {"live": Exit.DONE, "refused": Exit.BAD_INPUT, "stuck": Exit.VERIFY_FAILED}
    return known.get(link.state, Exit.UNREACHABLE)


def _shown(fleet: Fleet, view: View) -> list[Link]:
    """Return the hosts that match the filter."""
    return [link for link in fleet.links if view.chosen.gpus(link) is not None]


def _stream(arguments: argparse.Namespace, fleet: Fleet, record: Callable[[list[Link]], None]) -> Exit:
    """Print a document (or rows) for each moment."""
    from gpusetup_fleet.watch.documents import document
    from gpusetup_fleet.watch.figures import Filter

    chosen = Filter(arguments.filter)
    ticks = _Ticks(arguments.every)
    with ExitStack() as stack:
        target = stack.enter_context(_opened(arguments.out)) if arguments.out else None
        while True:
            fleet.turn(min(ticks.left(), fleet.next_due()))
            if not ticks.due():
                continue
            links = [link for link in fleet.links if chosen.gpus(link) is not None]
            record(links)
            if arguments.format == "json":
                line = output.json_line(document(fleet.links, links, time.time())) + "\n"
                if target is None:
                    _write(line)
                else:
                    target.write(line)
                    target.flush()


def _opened(path: str) -> Any:
    try:
        return Path(path).open("a", encoding="utf-8")
    except OSError as error:
        raise BadInputError(
            "GS-103", f"cannot write {path}: {error.strerror}", path=path, hint="give another file with --out"
        ) from error


def _lines(arguments: argparse.Namespace, fleet: Fleet, view: View, record: Callable[[list[Link]], None]) -> Exit:
    """Print the list repeatedly without a terminal; with --csv FILE, write only that file."""
    ticks = _Ticks(arguments.every)
    while True:
        fleet.turn(min(ticks.left(), fleet.next_due()))
        if ticks.due():
            shown = _shown(fleet, view)
            record(shown)
            if arguments.csv is None:
                _write(view.listing(shown, _width(), time.strftime("%H:%M:%S")) + "\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _width() -> int:
    return shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 120


def _has_screen() -> bool:
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    import importlib.util

    return importlib.util.find_spec("_curses") is not None


def _screen(fleet: Fleet, view: View, record: Callable[[list[Link]], None]) -> Exit:
    from gpusetup_fleet.cli.watch_screen import Keys, Screen

    ticks, drawn = _Ticks(fleet.every), 0.0
    with Screen() as screen:
        keys = Keys(view, fleet.links, screen)
        fleet.listen(sys.stdin, keys.read)
        while not keys.ended:
            came = fleet.turn(min(ticks.left(), fleet.next_due(), _FRAME if drawn else 0.0))
            keys.read()  # a resized terminal is a key, too
            if ticks.due():
                record(_shown(fleet, view))
            now = time.monotonic()
            if keys.pressed or now - drawn >= (_FRAME if came else 1.0):
                keys.pressed, drawn = False, now
                screen.draw(view.lines(fleet.links, *screen.size, time.strftime("%H:%M:%S")))
    return Exit.DONE
