"""Render the report for a terminal, or 80 columns wide without one; colour alone never carries meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.drive.causes import common, in_short
from gpusetup.report.model import BLAME, counted, duration, figures

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gpusetup.model.verdict import Result, Verdict
    from gpusetup.report.model import HostReport, Report

WORDS: dict[Verdict, str] = {"pass": "pass", "warn": "WARN", "fail": "FAIL", "skip": "skip", "unsupported": "n/a"}
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
    from io import StringIO

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
        table = _table("", "check", "what was found", widths=(4, 20, None))
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
    """Print the skipped checks, grouped by reason."""
    from rich.padding import Padding
    from rich.text import Text

    reasons: dict[str, list[str]] = {}
    for result in results:
        reasons.setdefault(result.text, []).append(result.id)
    console.print(Text("  not judged:"))
    for reason, names in reasons.items():
        console.print(Padding(Text(f"{', '.join(names)}: {reason}", style="dim"), (0, 0, 0, 4)))


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
    from msgspec.structs import replace

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
