"""Render a report in a named format: the JSON document, JUnit XML and textfile that programs read, a page, a text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import datetime
from io import StringIO
from itertools import chain
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import SubElement

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.drive.causes import common, in_short
from gpusetup.model import visible
from gpusetup.model.examined import VerifyReport, VerifySummary
from gpusetup.report.model import BLAME, POSTPONED, WORDS, counted, counts, duration, figures

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table

    from gpusetup.model.verdict import Result, Verdict
    from gpusetup.report.model import HostReport, Report


def render(report: Report, name: str, *, watched: bool = False) -> str:
    """Return the report as text; the modules of pages and of terminals are imported only when used."""
    if name == "junit":
        return to_junit(report)
    if name == "html":
        from gpusetup.report.html import to_html

        return to_html(report)
    if name == "prometheus":
        return to_prometheus(report)
    if name == "json":
        return msgspec.json.format(msgspec.json.encode(to_document(report)), indent=2).decode() + "\n"
    return to_text(report, watched=watched)


def to_document(report: Report) -> dict[str, Any]:
    """Return the report's JSON document."""
    document = VerifyReport(
        ok=report.ok,
        level=report.level,
        started=report.started,
        seconds=report.seconds,
        program=report.program,
        hosts={host.name: host.results for host in report.hosts},
        summary={host.name: _summary(host) for host in report.hosts},
    )
    told: dict[str, Any] = msgspec.to_builtins(document)
    return told


def _summary(host: HostReport) -> VerifySummary:
    return VerifySummary(
        verdict=host.verdict,
        counts=counts(host.results),
        seconds=host.seconds,
        rows={row.label: row.text for row in host.rows},
        state=host.state or UNSET,
        problem=host.problem or UNSET,
        simulated=True if host.simulated else UNSET,
    )


# XML 1.0 forbids these characters; a kernel log may contain them.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> str:
    """Return the report as JUnit XML: a suite per host, a case per check. A warning passes; its output mentions it."""
    suites = ET.Element("testsuites", name=_clean(report.title), time=f"{report.seconds:.3f}")
    total = failed = skipped = 0
    for host in report.hosts:
        suite = _suite(suites, host, report)
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    suites.set("tests", str(total))
    suites.set("failures", str(failed))
    suites.set("skipped", str(skipped))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _suite(parent: ET.Element, host: HostReport, report: Report) -> ET.Element:
    verdicts = [result.verdict for result in host.results]
    away = host.state == POSTPONED
    suite = SubElement(
        parent,
        "testsuite",
        name=_clean(host.name),
        hostname=_clean(host.name),
        timestamp=report.started.removesuffix("Z").split("+")[0],
        tests=str(len(verdicts) + bool(host.problem)),
        failures=str(verdicts.count("fail")),
        errors=str(int(bool(host.problem) and not away)),
        skipped=str(verdicts.count("skip") + verdicts.count("unsupported") + away),
        time=f"{host.seconds:.3f}",
    )
    if host.rows:
        properties = SubElement(suite, "properties")
        for row in host.rows:
            SubElement(properties, "property", name=_clean(row.label), value=_clean(row.text))
    if host.problem:
        case = SubElement(suite, "testcase", classname="gpusetup.host", name="reached", time="0")
        SubElement(case, "skipped" if away else "error", message=_clean(host.problem))
    for result in host.results:
        _case(suite, result)
    return suite


def _case(suite: ET.Element, result: Result) -> None:
    case = SubElement(
        suite, "testcase", classname=f"gpusetup.{result.level}", name=result.id, time=f"{result.seconds:.3f}"
    )
    numbers, fault = figures(result), f"at fault: {BLAME[result.blame]}" if result.blame else ""
    if result.verdict == "fail":
        failure = SubElement(case, "failure", message=_clean(result.text), type="fail")
        parts = [f"{item.subject}: {item.text}" for item in result.items if item.verdict == "fail"]
        failure.text = _clean("\n".join(filter(None, [numbers, *parts, fault])))
    elif result.verdict in ("skip", "unsupported"):
        prefix = "" if result.verdict == "skip" else "unsupported: "
        SubElement(case, "skipped", message=_clean(prefix + result.text))
    else:
        told = f"{'warning: ' if result.verdict == 'warn' else ''}{result.text}"
        SubElement(case, "system-out").text = _clean("\n".join(filter(None, [told, numbers, fault])))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)


_VERDICTS = ("pass", "warn", "fail", "skip", "unsupported")
Sample = tuple[dict[str, str], float]


_FIGURES = {
    "measured": "What a check measured", "expected": "What is usual for this machine",
    "limit": "The floor or ceiling a figure is held against",
}  # fmt: skip


def to_prometheus(report: Report) -> str:
    """Return the exposition text."""
    hosts = [host for host in report.hosts if host.state != POSTPONED]
    results = [(host.name, result) for host in hosts for result in host.results]
    started = datetime.fromisoformat(report.started.replace("Z", "+00:00")).timestamp()
    lines = [
        *metric(
            "gpusetup_verify_ok",
            "Whether no check failed on the host.",
            ((_of(host, report), float(host.verdict != "fail")) for host in hosts),
        ),
        *metric(
            "gpusetup_verify_check",
            "Verdict of each check: 1 for its verdict, with whose fault it is, 0 for the others.",
            (
                (
                    {"host": name, "check": result.id, "level": result.level, "verdict": verdict}
                    | ({"blame": result.blame} if result.blame and result.verdict == verdict else {}),
                    float(result.verdict == verdict),
                )
                for name, result in results
                for verdict in _VERDICTS
            ),
        ),
        *chain.from_iterable(
            metric(f"gpusetup_verify_{part}", f"{what}, in the unit of its label.", _numbers(results, part))
            for part, what in _FIGURES.items()
        ),
        *metric(
            "gpusetup_verify_duration_seconds",
            "How long the verification of the host took.",
            ((_of(host, report), host.seconds) for host in hosts),
        ),
        *metric(
            "gpusetup_verify_timestamp_seconds",
            "When the verification began, in seconds since 1970.",
            ((_of(host, report), started) for host in hosts),
        ),
    ]
    return "\n".join(lines) + "\n"


def _of(host: HostReport, report: Report) -> dict[str, str]:
    return {"host": host.name, "level": host.level or report.level}


def _numbers(results: list[tuple[str, Result]], field: str) -> Iterable[Sample]:
    for name, result in results:
        value = getattr(result, field)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield {"host": name, "check": result.id, "unit": result.unit}, float(value)


def metric(name: str, text: str, samples: Iterable[Sample], kind: str = "gauge") -> list[str]:
    """Return the lines of a metric, or none without samples."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    rows = []
    for labels, value in samples:
        plain = {key: visible(text, "\n").translate(escapes) for key, text in labels.items()}
        told = ",".join(f'{key}="{text}"' for key, text in plain.items())
        rows.append(f"{name}{{{told}}} {value:.10g}")
    return lines + rows if rows else []


MANY = 20
"""With at least this many hosts, those with equal results share one entry."""
NARROW = 60
"""Below this many columns, rows are stacked instead of laid out as a table."""
_COLOURS: dict[Verdict, str] = {
    "pass": "green",
    "warn": "yellow",
    "fail": "bold red",
    "skip": "dim",
    "unsupported": "dim",
}


def to_text(report: Report, *, watched: bool = False, width: int | None = None) -> str:
    """Return everything about one host, or only the problems of several."""
    from rich.console import Console

    target = StringIO()
    console = Console(
        file=target,
        width=width or (None if watched else 80),
        force_terminal=watched,
        highlight=False,
        markup=False,
        emoji=False,
    )
    single = len(report.hosts) == 1
    hosts = _together(report.hosts) if len(report.hosts) >= MANY else report.hosts
    for host in hosts:
        if hosts is report.hosts or host.verdict != "pass":
            _host(console, host, everything=single)
    if not single:
        _fleet(console, report, hosts)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()) + "\n"


def _table(*columns: str, widths: tuple[int | None, ...]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=False)
    for name, width in zip(columns, widths, strict=True):
        table.add_column(name, width=width, overflow="fold")
    return table


def _host(console: Console, host: HostReport, *, everything: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    head = f"{host.name}: {WORDS[host.verdict] if host.results or host.problem else 'nothing was checked'}"
    if host.state:
        head += f", {host.state}"
    if host.simulated:
        head += " (simulated GPU)"
    console.print(Text(head, style=_COLOURS[host.verdict]))
    if host.problem:
        console.print(Padding(Text(host.problem), (0, 0, 0, 2)))
    for row in host.rows:
        console.print(Padding(Text(f"{row.label}: {row.text}"), (0, 0, 0, 2)))
    shown = [
        result
        for result in host.results
        if result.verdict in ("fail", "warn") or (everything and result.verdict == "pass")
    ]
    if shown and console.width < NARROW:
        console.print()
        for result in _grave_first(shown):
            console.print(Text(f"{WORDS[result.verdict]} {result.id}", style=_COLOURS[result.verdict]))
            console.print(Padding(Text(_description(result)), (0, 0, 0, 2)))
    elif shown:
        console.print()
        longest = max(len(result.id) for result in shown)
        table = _table("", "check", "what was found", widths=(4, min(max(20, longest), 40), None))
        for result in _grave_first(shown):
            table.add_row(
                Text(WORDS[result.verdict], style=_COLOURS[result.verdict]), result.id, Text(_description(result))
            )
        console.print(table)
    if host.results:
        console.print()
        console.print(Text(f"  {counted(host)} in {duration(host.seconds)}"))
        idle = [result for result in host.results if result.verdict in ("skip", "unsupported")]
        if everything and idle:
            _idle(console, idle)
    console.print()


def _description(result: Result) -> str:
    numbers = figures(result)
    worth = result.verdict in ("fail", "warn") or result.unit in ("GB/s", "TFLOP/s")
    lines = [result.text]
    if numbers and worth and isinstance(result.limit, (int, float)):
        lines.append(numbers)
    if result.blame:
        lines.append(f"at fault: {BLAME[result.blame]}")
    return "\n".join(lines)


def _grave_first(results: list[Result]) -> list[Result]:
    order = ("fail", "warn", "pass")
    return sorted(results, key=lambda result: order.index(result.verdict))


def _idle(console: Console, results: list[Result]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    reasons: dict[str, list[str]] = {}
    for result in results:
        reasons.setdefault(result.text, []).append(result.id)
    console.print(Text("  not judged:"))
    for reason, names in reasons.items():
        told = ", ".join(names) if len(names) <= 8 else f"{len(names)} checks"
        console.print(Padding(Text(f"{told}: {reason}", style="dim"), (0, 0, 0, 4)))


def _together(hosts: tuple[HostReport, ...]) -> tuple[HostReport, ...]:
    """Merge hosts with equal results into one report each, named after a few of them."""
    groups: dict[object, list[HostReport]] = {}
    for host in hosts:
        trouble = tuple(
            (result.id, result.verdict, common(result.text, host.name))
            for result in host.results
            if result.verdict in ("fail", "warn")
        )
        alike = (host.verdict, host.state, host.simulated, common(host.problem, host.name), host.summary, trouble)
        groups.setdefault((*alike, counted(host)), []).append(host)
    return tuple(_named(found) for found in groups.values())


def _named(hosts: list[HostReport]) -> HostReport:
    if len(hosts) == 1:
        return hosts[0]
    name = f"{in_short([host.name for host in hosts])} ({len(hosts)} hosts)"
    return replace(hosts[0], name=name, problem=common(hosts[0].problem, hosts[0].name))


def _fleet(console: Console, report: Report, hosts: tuple[HostReport, ...]) -> None:
    from rich.text import Text

    table = _table("host", "", "machine", "checks", widths=(20, 4, 30, None))
    for host in hosts:
        if console.width < NARROW:
            console.print(Text(f"{WORDS[host.verdict]} {host.name}", style=_COLOURS[host.verdict]))
            console.print(Text(f"  {host.problem or host.summary}\n  {counted(host)}".rstrip()))
            continue
        table.add_row(
            host.name,
            Text(WORDS[host.verdict], style=_COLOURS[host.verdict]),
            Text(host.problem or host.summary),
            counted(host),
        )
    if table.row_count:
        console.print(table)
    failed = sum(1 for host in report.hosts if host.verdict == "fail")
    console.print()
    console.print(Text(f"{len(report.hosts)} hosts, {failed} failed, in {duration(report.seconds)}"))
