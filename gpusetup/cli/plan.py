"""Show what apply would do on each host: changes with reasons, reboots, removals, holds, download size.

Changes nothing. `gpusetup apply --plan FILE` takes the JSON answer.

examples:
  gpusetup plan inventory.ini
  gpusetup plan inventory.ini -w 'torch==2.6.*' --limit training --format json --out plan.json
  gpusetup plan inventory.ini --format html --out plan.html      a page for approval
  gpusetup plan inventory.ini --batch 1,10%,50%     also the batches
  gpusetup plan --exit-code            this machine; 9 when something would change
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.cli.requests import add_wishes, wishes_of
from gpusetup.errors import BadInputError, Exit, gravest, wrong_field

if TYPE_CHECKING:
    import argparse

    from gpusetup.model.plan import HostPlan, Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    add_wishes(parser)
    parser.add_argument("--exit-code", action="store_true", help="exit with 9 when something would change")
    parser.add_argument(
        "--batch", metavar="SIZES", default="", help="show the batches that `apply --batch SIZES` would make"
    )
    parser.add_argument(
        "--verbose", "-v", action="store_true", help="list every host, and the reasons for each component"
    )
    options.add_output(parser, formats=("text", "json", "html"))


def run(arguments: argparse.Namespace) -> Exit:
    """Plan and print."""
    from msgspec.structs import replace

    from gpusetup.cli.plan_text import plan_text, rows_of
    from gpusetup.cli.session import Progress, open_session
    from gpusetup.matrix.load import matrix
    from gpusetup.rollout.batches import batches, batches_of
    from gpusetup.rollout.looks import plan_hosts
    from gpusetup.rollout.options import Planning

    batches((), arguments.batch)  # reject a wrong size before contacting hosts
    how = Planning(wishes=wishes_of(arguments), to_apply=False)
    rollout = plan_hosts(how, open_session(arguments), matrix(), Progress())
    plan = rollout.document()
    if arguments.batch:
        plan = replace(plan, batches=tuple(batches_of(plan.hosts, arguments.batch)))
    rows = rows_of(plan, rollout.domains)
    if arguments.format == "json":
        text = output.json_text(plan)
    elif arguments.format == "html":
        from datetime import datetime, timezone

        from gpusetup.cli.html_pages import plan_html

        text = plan_html(plan, datetime.now(timezone.utc), rollout.facts, rows)
    else:
        text = output.painted(plan_text(plan, rows, verbose=arguments.verbose))
    output.write_answer(text, arguments.out)
    return gravest([exit_of(host, changes=arguments.exit_code) for host in plan.hosts.values()])


def load_plan(path: str) -> Plan:
    """Read a plan that `gpusetup plan` wrote."""
    import msgspec

    from gpusetup.model.plan import Plan

    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Plan)
    except OSError as error:
        raise BadInputError("GS-412", f"cannot read the plan: {error.strerror}", path=path) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text, where = wrong_field(error)
        raise BadInputError("GS-413", f"the plan cannot be used: {text}", path=f"{path}:{where}") from error


def exit_of(plan: HostPlan, *, changes: bool) -> Exit:
    """Return the exit code for one host's plan."""
    if plan.refusals:
        return gravest([Exit(refusal.exit) for refusal in plan.refusals])
    return Exit.PENDING if changes and plan.state == "change" else Exit.DONE
