"""Show a host's verifications over time: verdicts and figures.

gpusetup keeps root's verifications on the machine, those of a fleet here. Without HOST: this machine.

examples:
  gpusetup fleet history
  gpusetup fleet history gpu07 --runs 50
  gpusetup fleet history gpu07 --format html --out gpu07.html     pictures of the figures
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpusetup import __version__
from gpusetup.cli import options, output
from gpusetup.errors import BadInputError, Exit
from gpusetup.model import stamp
from gpusetup.model.facts import LOCAL_NAME

if TYPE_CHECKING:
    import argparse

    from gpusetup.report.history import Run, Series
    from gpusetup_fleet.health.service import Event

_FINDINGS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("host", nargs="?", metavar="HOST", help="a host of an inventory; without it: this machine")
    parser.add_argument("--level", choices=("quick", "smoke", "full", "stress"), help="only runs of this level")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="the newest N runs; default: %(default)s")
    options.add_output(parser, formats=("text", "json", "html"))


def run(arguments: argparse.Namespace) -> Exit:
    """Print the history."""
    from gpusetup.report.history import runs, series
    from gpusetup_fleet.health.service import events

    if arguments.runs < 1:
        raise BadInputError("GS-515", f"--runs must be 1 or more, not {arguments.runs}", path="--runs")
    host = arguments.host or LOCAL_NAME
    path = _file(arguments.host)
    past, figures = runs(path, arguments.level or "", min(arguments.runs, 1 << 32)), series(path)
    service = events(path)[-arguments.runs :]
    if arguments.format == "json":
        text = _json(host, path, past, figures, service)
    elif arguments.format == "html":
        text = _html(host, past, figures, service)
    else:
        text = _text(host, past, figures, service)
    output.write_answer(text, arguments.out)
    return Exit.DONE


def _file(host: str | None) -> Path:
    """Return the history file of a fleet's host or of this machine; an inventory may have a localhost too."""
    from gpusetup.report.history import file_of, known

    places = [file_of(LOCAL_NAME, os.environ, here=True)] if host in {None, LOCAL_NAME} else []
    places.append(file_of(host or LOCAL_NAME, os.environ, here=False))
    found = next((path for path in places if path.exists()), None)
    if found is None:
        import difflib

        hosts = known(os.environ)
        if host and os.path.isfile(host):  # noqa: PTH113 - takes names of any length
            text = Path(host).read_text("utf-8", "replace")
            named = [name for name in hosts if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text)]
            raise BadInputError(
                "GS-515", f"{host} is a file; a history needs the name of one host", path=host,
                hint=f"gpusetup fleet history {named[0]}; those that have one: {', '.join(named)}"
                if named
                else "no host in it has a history here; gpusetup verify INVENTORY begins them",
            )  # fmt: skip
        near = difflib.get_close_matches(host or "", hosts, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "gpusetup verify keeps one from its first run on"
        what = f"there is no history of {host or 'this machine'} here"
        raise BadInputError("GS-515", what, path=str(places[0].parent), hint=hint)
    return found


_EVENTS = {
    "left": "left service", "returned": "returned to service", "by hand": "returned, or its drain taken over, by hand",
    "refused": "refused a job", "forgotten": "errors in the kernel log up to now no longer count",
}  # fmt: skip


def _event_text(one: Event) -> str:
    why = f": {one.reason}" if one.event in {"left", "refused"} else ""
    return f"{one.place}: {_EVENTS[one.event]}{why}"


def _text(host: str, past: tuple[Run, ...], figures: tuple[Series, ...], service: tuple[Event, ...]) -> str:
    lines = [f"{host}: {len(past)} verification{'s' if len(past) != 1 else ''}", ""]
    for one in past:
        lines.append(f"  {one.time}  {one.level:<6}  {one.verdict}")
        lines += [f"    {verdict}  {name}: {text}" for name, verdict, text in one.findings[:_FINDINGS]]
        more = len(one.findings) - _FINDINGS
        lines += [f"    and {more} more"] if more > 0 else []
    lines += [""] * bool(service) + [f"  {stamp(one.moment)}  {_event_text(one)}" for one in service]
    if figures:
        lines += ["", f"  {len(figures)} figures over up to {max(len(one.points) for one in figures)} runs"]
    return "\n".join(lines) + "\n"


def _json(host: str, path: Path, past: tuple[Run, ...], figures: tuple[Series, ...], service: tuple[Event, ...]) -> str:
    from gpusetup_fleet.model.fleet import Verifications

    document = {
        "schema": "gpusetup/verifications/1", "host": host, "file": str(path),
        "runs": [
            {
                "time": one.time, "level": one.level, "verdict": one.verdict, "seconds": one.seconds,
                "program": one.program, "driver": one.driver,
                "findings": [{"id": name, "verdict": verdict, "text": text} for name, verdict, text in one.findings],
            }
            for one in past
        ],
        "figures": [
            {
                "check": one.check, "subject": one.subject, "unit": one.unit,
                "points": [[stamp(when), value] for when, value in one.points],
            }
            for one in figures
        ],
        "service": [
            {"time": stamp(one.moment), "place": one.place, "event": one.event, "reason": one.reason} for one in service
        ],
    }  # fmt: skip
    return output.json_text(msgspec.convert(document, Verifications))


def _html(host: str, past: tuple[Run, ...], figures: tuple[Series, ...], service: tuple[Event, ...]) -> str:
    from gpusetup.model.verdict import Verdict
    from gpusetup.report.history import pictures
    from gpusetup.report.html import to_html
    from gpusetup.report.model import HostReport, Report, Row

    rows = [
        Row(label=one.time, text=f"{one.level}: {one.verdict} {'; '.join(text for _, _, text in one.findings)}".strip())
        for one in reversed(past)
    ]
    rows = [Row(label=stamp(one.moment), text=_event_text(one)) for one in reversed(service)] + rows
    newest, verdict, seconds = (past[-1].time, past[-1].verdict, past[-1].seconds) if past else ("", "skip", 0.0)
    tone, trends = msgspec.convert(verdict, Verdict), pictures(figures)
    report = HostReport(name=host, rows=tuple(rows), trends=trends, state=verdict, tone=tone, seconds=seconds)
    title, program = f"Verifications of {host}", f"gpusetup {__version__}"
    return to_html(Report(title=title, started=newest, seconds=seconds, program=program, hosts=(report,)))
