"""Show end-of-support dates and known vulnerabilities of the hosts' drivers, the earliest end first.

examples:
  gpusetup matrix eol inventory.ini
  gpusetup matrix eol --within 180 --exit-code     9 when a host's driver ends within 180 days
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.errors import Exit, gravest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.documents import DriverEnd, State
    from gpusetup.model.facts import Facts


_CENTURY = 36_500
"""Days; a date has no year above 9999."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    parser.add_argument(
        "--within", metavar="DAYS", type=int, default=90, help="days that count as soon; default: %(default)s"
    )
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 9 when a driver's support has ended or ends soon"
    )
    options.add_output(parser, ("text", "json", "csv"))


def run(arguments: argparse.Namespace) -> Exit:
    """Print when the support of the hosts' drivers ends."""
    from gpusetup.cli.facts import collected
    from gpusetup.matrix.load import matrix
    from gpusetup.model.documents import DriverEnds

    arguments.root, arguments.capture, arguments.no_candidates = None, None, True
    facts, known = collected(arguments), matrix()
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    found = sorted(ends(facts, known, today, arguments.within), key=lambda end: (end.until or "9999", end.driver))
    failures = gravest([Exit(failure.exit) for failure in facts.failures.values()])
    if arguments.format == "json":
        unread = {name: failure.message for name, failure in facts.failures.items()}
        output.answer("json", DriverEnds(date=known.date, drivers=tuple(found), unread=unread), "", arguments.out)
    else:
        columns = ("driver", "branch", "until", "state", "CVEs", "ended by", "hosts")
        rows = [
            (
                end.driver,
                end.branch,
                end.until or "unknown",
                end.state,
                str(len(end.cves)),
                end.fixed,
                _hosts(end.hosts),
            )
            for end in found
        ]
        text = output.table(columns, rows) if rows else "no host has a driver of NVIDIA's"
        output.write_answer(output.csv_text(columns, rows) if arguments.format == "csv" else text, arguments.out)
    for name, failure in facts.failures.items():
        output.warn(f"{name}: {failure}")
    near = any(end.state in {"ended", "ends soon"} for end in found)
    return failures or (Exit.PENDING if near and arguments.exit_code else Exit.DONE)


def ends(facts: Facts, known: Matrix, today: dt.date, within: int) -> Iterator[DriverEnd]:
    """Yield each driver that hosts run, with the last day of its branch and its vulnerabilities."""
    from gpusetup.matrix.security import vulnerable
    from gpusetup.model.documents import DriverEnd

    soon = (today + dt.timedelta(days=max(-_CENTURY, min(within, _CENTURY)))).isoformat()
    hosts: dict[str, list[str]] = {}
    for name, host in facts.hosts.items():
        version = host.driver.version if host.driver else None
        if version:
            hosts.setdefault(version, []).append(name)
    for version, names in hosts.items():
        number = version.partition(".")[0]
        branch = next((item for item in known.driver.branches if str(item.branch) == number), None)
        until = branch.eol if branch is not None and branch.eol != "unknown" else ""
        state: State = "unknown"
        if branch is not None and branch.has_ended(today.isoformat()):
            state = "ended"
        elif until:
            state = "ends soon" if until <= soon[: len(until)] else "supported"
        told = f"R{branch.branch}, {branch.kind}" if branch is not None else "unknown to this matrix"
        carried = vulnerable(known, "driver", version)
        yield DriverEnd(
            driver=version,
            branch=told,
            until=until,
            state=state,
            hosts=tuple(sorted(names)),
            cves=tuple(cve for cve, _ in carried.cves) if carried else (),
            fixed=carried.fixed if carried else "",
        )


def _hosts(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
