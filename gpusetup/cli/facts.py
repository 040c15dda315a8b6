"""Show facts about hosts that matter to a GPU stack; changes nothing.

Without INVENTORY: this machine; --root DIR reads a captured one.

examples:
  gpusetup facts
  gpusetup facts inventory.ini --format table
  gpusetup facts inventory.ini --format json --out facts.json     for `gpusetup resolve --from`
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.errors import BadInputError, Exit, gravest

if TYPE_CHECKING:
    import argparse

    from gpusetup.facts.collect import Lookup
    from gpusetup.model.facts import Facts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    group = parser.add_argument_group("what to examine")
    group.add_argument("--root", metavar="DIR", help="a captured machine instead of a real one")
    group.add_argument(
        "--capture", metavar="DIR", help="also write a redacted miniature root, for a bug report or a test"
    )
    group.add_argument("--no-candidates", action="store_true", help="skip the package repositories (faster)")
    options.add_output(parser, formats=("text", "json", "table", "csv", "html"))


def run(arguments: argparse.Namespace) -> Exit:
    """Collect the facts and print them."""
    facts = collected(arguments)
    output.answer(arguments.format, facts, lambda: _text(facts, arguments.format), arguments.out)
    return gravest([Exit(failure.exit) for failure in facts.failures.values()])


def _text(facts: Facts, form: str) -> str:
    from gpusetup.facts import properties
    from gpusetup.facts.text import describe

    if form == "table":
        return output.table(properties.SHORT, properties.short_rows(facts))
    if form == "csv":
        return output.csv_text(properties.COLUMNS, properties.full_rows(facts))
    return _html(facts) if form == "html" else describe(facts)


def _html(facts: Facts) -> str:
    from gpusetup.components import judge
    from gpusetup.facts.text import described
    from gpusetup.model import stamp
    from gpusetup.report.html import page
    from gpusetup.report.topology import picture, topology_of

    hosts = [(title, rows, host and topology_of(judge.probed(host))) for title, rows, host in described(facts)]
    title = hosts[0][0] if len(hosts) == 1 else f"{len(facts.hosts) + len(facts.failures)} hosts"
    return page("facts", title=title, made=stamp(), hosts=hosts, picture=picture)


def collected(arguments: argparse.Namespace) -> Facts:
    """Return the facts of the hosts in the arguments."""
    from gpusetup.cli.session import names_of_gpus
    from gpusetup.facts import collect
    from gpusetup.model.facts import LOCAL_NAME, Facts

    lookup = names_of_gpus()
    if arguments.root is not None:
        if arguments.inventory or arguments.capture:
            other = "an inventory" if arguments.inventory else "--capture"
            raise BadInputError("GS-307", f"--root examines a folder and cannot be used with {other}", path="--root")
        return Facts(hosts={LOCAL_NAME: collect.captured(Path(arguments.root), lookup)})
    if arguments.inventory:
        return _fleet(arguments, lookup)
    candidates = not arguments.no_candidates
    if arguments.capture:
        host = collect.capture_this_machine(Path(arguments.capture), lookup, candidates=candidates)
    else:
        host = collect.this_machine(lookup, candidates=candidates)
    return Facts(hosts={LOCAL_NAME: host})


def _fleet(arguments: argparse.Namespace, lookup: Lookup) -> Facts:
    """Collect the facts of an inventory's hosts; with --capture each host gets its own folder."""
    from gpusetup.cli.session import open_session
    from gpusetup.drive.inventory import check_host_name
    from gpusetup.facts import collect, fleet

    session = open_session(arguments)
    looked = fleet.look(session, lookup, candidates=not arguments.no_candidates, record=arguments.capture is not None)
    for name, packed in looked.captures.items():
        if problem := check_host_name(name):
            raise BadInputError("GS-310", f"a folder cannot have the name of the host {name!r}", note=problem)
        collect.write_capture(packed, Path(arguments.capture) / name)
    return looked.facts
