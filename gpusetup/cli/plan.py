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

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpusetup.cli import options, output
from gpusetup.cli.grammar import tables
from gpusetup.cli.requests import add_wishes, wishes_of
from gpusetup.drive.causes import common, counted, grouped, in_short, tally
from gpusetup.drive.progress import watch
from gpusetup.errors import Exit, gravest
from gpusetup.model import Reading, stamp
from gpusetup.model.lifecycle import VERIFICATION, Trouble

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from gpusetup.drive.playbook import Observer
    from gpusetup.model.applied import Applied
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.lifecycle import HostOutcome, HostRemoval
    from gpusetup.model.plan import HostPlan, Plan, Refusal
    from gpusetup.model.stack import Stack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    add_wishes(parser)
    parser.add_argument("--exit-code", action="store_true", help="exit with 9 when something would change")
    parser.add_argument(
        "--batch", metavar="SIZES", default="", help="show the batches that `apply --batch SIZES` would make"
    )
    parser.add_argument(
        "--verbose", "-v", action="store_true", help="list every host, the holds, and the reasons for each component"
    )
    options.add_output(parser, formats=("text", "json", "html"))


def run(arguments: argparse.Namespace) -> Exit:
    """Plan and print."""
    from gpusetup.cli.session import open_session
    from gpusetup.matrix.load import matrix
    from gpusetup.rollout.batches import batches, batches_of
    from gpusetup.rollout.looks import plan_hosts
    from gpusetup.rollout.options import Planning

    batches((), arguments.batch)  # reject a wrong size before contacting hosts
    how = Planning(wishes=wishes_of(arguments), to_apply=False)
    rollout = plan_hosts(how, open_session(arguments), matrix(), Progress())
    plan = rollout.document()
    if arguments.batch:
        plan = msgspec.structs.replace(plan, batches=tuple(batches_of(plan.hosts, arguments.batch)))
    rows = rows_of(plan, rollout.domains)

    def text() -> str:
        from datetime import datetime, timezone

        if arguments.format == "html":
            return plan_html(plan, datetime.now(timezone.utc), rollout.facts, rows)
        return output.painted(plan_text(plan, rows, verbose=arguments.verbose))

    if arguments.out:
        output.say(summary(plan))
    output.answer(arguments.format, plan, text, arguments.out)
    return gravest([exit_of(host, changes=arguments.exit_code) for host in plan.hosts.values()])


def load_plan(path: str) -> Plan:
    """Read a plan that `gpusetup plan` wrote."""
    from gpusetup.model.plan import Plan

    with Reading(path, ("GS-413", "the plan cannot be used"), ("GS-412", "cannot read the plan")):
        return msgspec.json.decode(Path(path).read_bytes(), type=Plan)


def exit_of(plan: HostPlan, *, changes: bool) -> Exit:
    """Return the exit code for one host's plan."""
    if plan.refusals:
        return gravest([Exit(refusal.exit) for refusal in plan.refusals])
    return Exit.PENDING if changes and plan.state == "change" else Exit.DONE


class Row(NamedTuple):
    """One batch, or several successive ones of equal size."""

    which: str
    """batch 1, batches 4 to 9."""
    names: list[str]
    size: str
    """1 host; 50 hosts each."""
    reboots: int
    domains: list[str]
    """The hosts' failure domains, such as racks, from the inventory."""


def rows_of(plan: Plan, domains: Mapping[str, str]) -> list[Row]:
    """Return rows for the batches, in order."""
    rows = []
    for size, group in groupby(enumerate(plan.batches, 1), lambda item: len(item[1])):
        numbered = list(group)
        (first, _), (last, _) = numbered[0], numbered[-1]
        names = [name for _, batch in numbered for name in batch]
        rows.append(
            Row(
                which=f"batch {first}" if first == last else f"batches {first} to {last}",
                names=names,
                size=counted(size, "host") + ("" if first == last else " each"),
                reboots=sum(1 for name in names if plan.hosts[name].reboot),
                domains=sorted({domains[name] for name in names if name in domains}),
            )
        )
    return rows


def plan_text(plan: Plan, batches: Sequence[Row] = (), *, verbose: bool = False) -> str:
    """Return the plan as text."""
    each = [([name], _host(host, verbose=True)) for name, host in plan.hosts.items()] if verbose else None
    groups = groups_of(plan) if each is None else each
    blocks = [_block(names, text) for names, text in groups]
    return "\n\n".join([*blocks, *([_batches(batches)] if batches else []), summary(plan)]) + "\n"


def _batches(batches: Sequence[Row]) -> str:
    lines = ["In this order, each batch verified before the next begins:"]
    for row in batches:
        told = [row.size, counted(row.reboots, "reboot")]
        told += [f"in {in_short(row.domains)}"] if row.domains else []
        lines += output.wrapped(f"{row.which:<16} {in_short(row.names)} ({', '.join(told)})", "  ", " " * 19)
    return "\n".join(lines)


def groups_of(plan: Plan) -> list[tuple[list[str], str]]:
    """Group hosts with equal text: their names, and the text."""
    return grouped(plan.hosts, _host, _without_name)


def shared_plan(names: list[str], plan: Plan) -> HostPlan:
    """Return the plan that a group of hosts shares, without the name of a single host."""
    host = plan.hosts[names[0]]
    return host if len(names) == 1 else _without_name(names[0], host)


def _block(names: list[str], told: str) -> str:
    title = in_short(names) + (f" ({len(names)} hosts)" if len(names) > 1 else "")
    return "\n".join([*output.wrapped(title, "", "  "), *([told] if told else [])])


def _without_name(name: str, host: HostPlan) -> HostPlan:
    return msgspec.structs.replace(host, refusals=refusals_without_name(name, host.refusals))


def refusals_without_name(name: str, refusals: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
    """Return a host's refusals without its name, so that hosts can share them."""
    return tuple(
        msgspec.structs.replace(
            item, message=common(item.message, name), note=common(item.note, name), hint=common(item.hint, name)
        )
        for item in refusals
    )


def _host(host: HostPlan, *, verbose: bool = False) -> str:
    lines = output.wrapped(f"now      {host.now}") if host.now else []
    if host.stack is not None:
        lines += output.wrapped(f"then     {stack_line(host.stack)}")
    if host.state == "unchanged":
        lines.append("  nothing to change")
    for refusal in host.refusals:
        lines += refusal_lines(refusal)
    for number, action in enumerate(host.actions, 1):
        lines += output.wrapped(f"{number:>2} {action.kind:<10} {action.what}", "  ", " " * 16)
        lines += output.wrapped(f"because {action.why}", " " * 16, " " * 16)
    if host.state == "change":
        lines += _facts(host, verbose=verbose)
    for text in host.warnings:
        lines += output.wrapped(f"note     {text}")
    if verbose:
        for reason in host.reasons:
            lines += output.wrapped(f"{reason.component:<10} {reason.text}", "  ", " " * 13)
    return "\n".join(lines)


def _facts(host: HostPlan, *, verbose: bool) -> list[str]:
    reboot = f"yes: {host.reboot_why}" if host.reboot else "no"
    lines = output.wrapped(f"reboot   {reboot}")
    lines += output.wrapped(f"away     {downtime_text(host)}")
    if host.jobs:
        lines += output.wrapped(f"jobs     {jobs_text(host)}")
    if host.work:
        lines += output.wrapped(f"runs     {work_text(host)}")
    lines += output.wrapped(f"removes  {', '.join(host.removals) or 'nothing'}")
    if host.holds and verbose:
        lines += output.wrapped(f"holds    {', '.join(host.holds)}")
    lines.append(f"  download {download_text(host)}")
    return lines


_MEASURED: dict[str, str] = tables()["downtimes"]


def downtime_text(host: HostPlan) -> str:
    """Return how long a host will be away, rounded so that similar hosts get equal text."""
    away = host.away
    if away is None:
        return "not known"
    reboot = f"the reboot takes {_about(away.reboot_seconds)} of it" if host.reboot else "without a reboot"
    least = "at least" if away.source == "bench" else "about"
    return f"{least} {_about(away.seconds)}, {reboot} ({_MEASURED[away.source]})"


def _about(seconds: float) -> str:
    return f"{max(10, round(seconds, -1)):.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def jobs_text(host: HostPlan) -> str:
    """Return which programs apply waits for."""
    names = in_short(sorted(set(host.jobs.values())))
    return f"apply waits for what uses the GPU and stops none: {names}"


def work_text(host: HostPlan) -> str:
    """Return what schedulers run on a host, and how apply treats it."""
    ways = "; ".join(f"--drain {name}" for name in dict.fromkeys(one.scheduler for one in host.work))
    told = "; ".join(map(str, host.work[:8])) + (f" and {len(host.work) - 8} more" if len(host.work) > 8 else "")
    return f"{told}: {ways} waits for that" + (
        ", without it the reboot ends what does not use a GPU" if host.reboot else ""
    )


def download_text(host: HostPlan) -> str:
    """Return how much a host downloads."""
    if host.wheel_bytes is None:
        return f"{output.size_text(host.package_bytes)} of packages, and Python packages of unknown size"
    wheels = f", {output.size_text(host.wheel_bytes)} of it Python packages" if host.wheel_bytes else ""
    return output.size_text(host.download_bytes) + wheels


def refusal_lines(refusal: Refusal) -> list[str]:
    """Return the lines of a refusal: what, why, and what to do."""
    lines = output.wrapped(f"refused  {refusal.message} [{refusal.reference}]")
    for paragraph in refusal.note.splitlines():
        lines += output.wrapped(paragraph.strip(), " " * 11, " " * 13)
    if refusal.hint:
        lines += output.wrapped(f"hint     {refusal.hint}")
    return lines


def failure_lines(outcome: HostOutcome | HostRemoval) -> list[str]:
    """Return the lines of a host that failed or was interrupted: where, what, why, and what to do."""
    told: list[str] = []
    if outcome.state == "interrupted":
        left = "It continues on the host; run the same command to follow it and go on"
        if outcome.failed_at == VERIFICATION:
            left = "The changes before it stay; run the same command to verify them"
        told = [f"in: {outcome.failed_at}. {left}"]
    elif outcome.failure is not None or outcome.state == "failed":
        failure = outcome.failure or Trouble()
        reference = f" [{failure.reference}]" if failure.reference else ""
        told = [f"at: {outcome.failed_at}", *(failure.message or "").splitlines()[:12]]
        told[-1] += reference
        for text in (failure.context, failure.note):
            told += (text or "").splitlines()[:12]
        told.append(f"hint: {failure.hint or 'run the same command to resume; see the full log'}")
    return [line for text in told if text.strip() for line in output.wrapped(text, rest=" " * 4)]


def stack_line(stack: Stack) -> str:
    """Return a stack on one line."""
    parts = []
    if stack.driver is not None:
        kept = ", stays" if stack.driver.installed else ""
        parts.append(f"driver {stack.driver.version} ({stack.driver.module}{kept})")
    for name in ("cuda", "cudnn", "nccl", "torch", "tensorflow", "jax", "cupy"):
        chosen = stack.part(name)
        if chosen is not None:
            variant = f"+{chosen.variant}" if name == "torch" else ""
            others = [other.version for other in stack.cudas] if name == "cuda" else []
            parts.append(" and ".join([f"{name} {chosen.version}{variant}", *others]))
    if stack.python is not None and stack.python.version:
        parts.append(f"Python {stack.python.version}")
    return ", ".join(parts)


def recorded_stack(host: Applied | HostPlan) -> str:
    """Return the stack in a host's record or plan on one line, or an empty string."""
    return stack_line(host.stack) if host.stack is not None else ""


def summary(plan: Plan) -> str:
    """Return the plan in one line."""
    states = [host.state.replace("-", " ") for host in plan.hosts.values()]
    reboots = sum(1 for host in plan.hosts.values() if host.reboot)
    return f"{tally(states)}; {counted(reboots, 'reboot')}. Matrix of {plan.matrix.date}."


_COLOURS = {"change": "warn", "unchanged": "pass", "nothing-to-do": "skip"}
_STATES: dict[str, str] = tables()["plans"]


def plan_html(plan: Plan, made: datetime, facts: Mapping[str, HostFacts], batches: Sequence[Row] = ()) -> str:
    """Return the page of a plan; hosts with equal plans share one section."""
    from gpusetup.report.html import page

    return page(
        "plan",
        title=f"Plan for {counted(len(plan.hosts), 'host')}",
        made=stamp(made),
        told=["nothing was changed"],
        summary=summary(plan),
        batches=batches,
        groups=[(names, shared_plan(names, plan)) for names, _ in groups_of(plan)],
        words=_STATES,
        colours={state: _COLOURS.get(state, "fail") for state in _STATES},
        short=in_short,
        size=output.size_text,
        download=download_text,
        away=downtime_text,
        jobs=jobs_text,
        work=work_text,
        stack=recorded_stack,
        picture=lambda name: _picture(facts.get(name)),
    )


def _picture(host: HostFacts | None) -> str:
    from gpusetup.components import judge
    from gpusetup.report.topology import picture, topology_of

    return picture(topology_of(judge.probed(host))) if host is not None else ""


class Progress:
    """Reports the progress of a rollout on the command line."""

    def watch(self, phase: str) -> AbstractContextManager[Observer]:
        """Report the progress of a phase's playbook."""
        return watch(output.aside(), phase=phase)

    def begins(self, changes: Mapping[str, HostPlan]) -> None:
        """Print what is about to change."""
        reboots = sum(1 for plan in changes.values() if plan.reboot)
        sizes = [plan.download_bytes or 0 for plan in changes.values()]
        removals = sorted({name for plan in changes.values() for name in plan.removals})
        gone = f"; removes {', '.join(removals[:6])}" + (" …" if len(removals) > 6 else "") if removals else ""
        unknown = any(plan.download_bytes is None for plan in changes.values())
        most = "not known" if unknown else f"at most {output.size_text(max(sizes))}"
        self.say(f"{counted(len(changes), 'host')} to change, {reboots} may reboot; download per host: {most}{gone}")
        slowest = max(changes.values(), key=lambda plan: plan.away.seconds if plan.away is not None else 0.0)
        self.say(f"{'the slowest host' if len(changes) > 1 else 'the host'} is away for {downtime_text(slowest)}")
        for name, plan in changes.items():
            if plan.jobs:
                self.say(f"{name}: {jobs_text(plan)}")
            if plan.work:
                self.say(f"{name}: {work_text(plan)}")
            for action in plan.actions:
                if action.id == "remove-runfile":
                    self.say(f"{name}: removes {action.what}: {action.why}")

    def say(self, text: str) -> None:
        """Print a line."""
        output.say(text)
