"""Compare hosts of one kind: versions, firmware, links, BIOS, IOMMU and ACS, measured figures.

A setting stands out when more than half of the hosts with the same GPUs have another; a figure, when it is far from
the median for its spread. Changes nothing. Figures are the last in each host's history (`gpusetup fleet history`), or
from documents of `gpusetup verify --format json`.

examples:
  gpusetup fleet compare inventory.ini
  gpusetup fleet compare inventory.ini --figures verify.json --html compare.html
  gpusetup fleet compare --from facts.json --figures verify.json --format json
  gpusetup fleet compare inventory.ini --exit-code        9 when something stands out
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.errors import BadInputError, Exit, gravest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from gpusetup.model.facts import Facts, Failure, HostFacts
    from gpusetup.model.verdict import Result
    from gpusetup_fleet.model.fleet import Comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser, "--from FILE")
    group = parser.add_argument_group("what is compared")
    group.add_argument(
        "--from", dest="facts", action="append", default=[], metavar="FILE",
        help="facts of hosts instead of an inventory, as written by `gpusetup facts`; repeatable",
    )  # fmt: skip
    group.add_argument(
        "--figures", action="append", default=[], metavar="FILE",
        help="what `gpusetup verify --format json` measured, instead of the histories; repeatable, later files win",
    )  # fmt: skip
    group.add_argument("--exit-code", action="store_true", help="exit 9 when something stands out")
    options.add_output(parser)
    parser.add_argument("--html", metavar="FILE", help="also write a page with a heat map")


def run(arguments: argparse.Namespace) -> Exit:
    """Compare the hosts and print the differences."""
    from gpusetup_fleet.compare.hosts import compared

    facts = _facts(arguments)
    comparison = compared(facts, _last_known(facts.hosts) | _figures(arguments.figures))
    if arguments.html:
        from datetime import datetime, timezone

        from gpusetup_fleet.compare.hosts import to_html

        output.write_answer(to_html(comparison, datetime.now(timezone.utc)), arguments.html)
    output.answer(arguments.format, comparison, _text(comparison), arguments.out)
    codes = [Exit(failure.exit) for failure in facts.failures.values()]
    return gravest([*codes, Exit.PENDING if arguments.exit_code and comparison.outliers else Exit.DONE])


def _facts(arguments: argparse.Namespace) -> Facts:
    from gpusetup.model.facts import Facts

    if bool(arguments.facts) == bool(arguments.inventory):
        raise BadInputError(
            "GS-951",
            "compare takes either an inventory or saved facts (--from)",
            path="--from" if arguments.facts else "",
        )
    if arguments.inventory:
        from gpusetup.cli.session import facts_of_hosts

        return facts_of_hosts(arguments)
    from gpusetup.facts.collect import read_facts

    hosts: dict[str, HostFacts] = {}
    failures: dict[str, Failure] = {}
    for path in arguments.facts:
        found = read_facts(Path(path))
        # Facts that machines collected of themselves all have the name localhost.
        hosts |= {
            name if name not in hosts else f"{name} ({Path(path).name})": host for name, host in found.hosts.items()
        }
        failures |= found.failures
    failures = {name: failure for name, failure in failures.items() if name not in hosts}
    return Facts(ok=not failures, hosts=hosts, failures=failures)


def _last_known(names: Iterable[str]) -> dict[str, tuple[Result, ...]]:
    """Return the last figures in this user's histories of hosts."""
    import os

    from gpusetup.model.verdict import Item, Result
    from gpusetup.report.history import file_of, series

    found = {}
    for name in names:
        path = file_of(name, os.environ, here=False)
        results: dict[tuple[str, str], list[Item]] = {}
        for one in series(path) if path.exists() else ():
            items = results.setdefault((one.check, one.unit), [])
            items.append(Item(one.subject, "pass", measured=one.points[-1][1]))
        if results:
            found[name] = tuple(
                Result(id=check, level="full", verdict="pass", text="", unit=unit, items=tuple(items), seconds=0.0)
                for (check, unit), items in results.items()
            )
    return found


def _figures(paths: list[str]) -> dict[str, tuple[Result, ...]]:
    found: dict[str, tuple[Result, ...]] = {}
    for path in paths:
        found |= _read_figures(path)
    return found


def _read_figures(path: str) -> dict[str, tuple[Result, ...]]:
    import msgspec

    from gpusetup.model import Reading
    from gpusetup.model.examined import VerifyReport

    with Reading(path, ("GS-952", f"{path} is not a document of figures"), ("GS-952", f"cannot read {path}")):
        return msgspec.json.decode(Path(path).read_bytes(), type=VerifyReport).hosts


def _text(comparison: Comparison) -> str:
    from gpusetup_fleet.compare.hosts import COLUMNS, rows, title, trailer

    parts = []
    for group in comparison.groups:
        lines = rows(group)
        text = title(group) + "\n"
        if lines:
            text += "\n" + output.table(COLUMNS, lines)
        parts.append(text + (f"\n{trailer(group)}\n" if len(group.hosts) > 1 else ""))
    told = [f"{name}: {failure}" for name, failure in comparison.failures.items()]
    return "\n".join([*parts, *told]) or "no hosts\n"
