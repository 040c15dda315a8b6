"""Bring hosts to one proven stack: check, install, verify, report. Safe to repeat; resumes after an interruption.

Without INVENTORY: this machine, which gpusetup never reboots without --reboot. A second run changes nothing.

examples:
  gpusetup apply inventory.ini
  gpusetup apply inventory.ini -w 'torch==2.6.*' --limit training
  gpusetup apply inventory.ini --check          checked on the hosts, changes nothing
  gpusetup apply inventory.ini --plan plan.json      exactly this plan
  gpusetup apply --lock gpu.lock.json           exactly this stack
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from gpusetup import __version__
from gpusetup.cli import options, output, streams
from gpusetup.cli.grammar import tables
from gpusetup.cli.plan import Progress, failure_lines, load_plan, refusal_lines, refusals_without_name, stack_line
from gpusetup.cli.requests import add_wishes, wishes_of
from gpusetup.components.record import record_of
from gpusetup.drive.causes import common, counted, grouped, in_short, tally
from gpusetup.errors import Exit, PreflightError, gravest
from gpusetup.model.applied import NO_LOCK
from gpusetup.plan.settings import NO_EFFECT

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from datetime import datetime

    from gpusetup.model.applied import Applied as HostLock
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.lifecycle import Applied, HostOutcome
    from gpusetup.model.verdict import Verdict
    from gpusetup.report.model import HostReport
    from gpusetup.rollout.options import Applying, Planning


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    add_wishes(parser)
    group = parser.add_argument_group("apply")
    exact = group.add_mutually_exclusive_group()
    exact.add_argument("--plan", metavar="FILE", help="carry out this plan; refuse hosts that have changed since")
    exact.add_argument("--lock", metavar="FILE", help="apply exactly this lock")
    exact.add_argument("--recorded", action="store_true", help="restore what was last applied to each host")
    group.add_argument(
        "--keep-driver", action="store_true", help="with --lock: keep a working driver that fits the rest of the lock"
    )
    group.add_argument(
        "--stage", choices=("image",),
        help="with --lock: prepare an image for the GPUs of the lock; no verification, no reboot",
    )  # fmt: skip
    group.add_argument("--check", action="store_true", help="show what would be done; change nothing")
    group.add_argument("--verify", choices=("auto", "always", "never"), default="auto", help="default: %(default)s")
    add_batches(parser, "--batch or --resume").add_argument(
        "--resume", action="store_true", help="continue the last stopped rollout with the hosts that are left"
    )
    options.add_draining(parser)
    options.add_output(parser, formats=("text", "json", "html"))


def add_batches(parser: argparse.ArgumentParser, beside: str = "--batch") -> argparse._ArgumentGroup:
    """Add the options for changing a fleet in batches, some of which need others beside them; return their group."""
    group = parser.add_argument_group("fleets")
    group.add_argument(
        "--batch",
        metavar="SIZES",
        default="",
        help="hosts per batch, each verified before the next: 1,10%%,50%%; the last size repeats",
    )
    group.add_argument(
        "--max-fail",
        type=int,
        metavar="N",
        default=0,
        help=f"with {beside}: continue with the next batch after up to N failed hosts",
    )
    group.add_argument(
        "--max-fail-domain", type=int, metavar="N",
        help="begin no more hosts of one gpusetup_domain (a rack, a switch) after more than N of them failed",
    )  # fmt: skip
    return group


def run(arguments: argparse.Namespace) -> Exit:
    """Apply and report."""
    from gpusetup.cli.session import open_session
    from gpusetup.drive.rundir import state_home
    from gpusetup.matrix.load import matrix
    from gpusetup.rollout.batches import stopped_rollout
    from gpusetup.rollout.looks import plan_hosts
    from gpusetup.rollout.waves import carry_out

    planning = _planning(arguments)
    keep: Literal["anew", "on"] = "on" if arguments.resume else "anew"
    how = applying(arguments, keep=keep, verify=not planning.image)
    with streams.terminated_is_interrupted():
        session = open_session(arguments)
        if arguments.resume:
            left = stopped_rollout(state_home(session.environment), arguments.inventory)
            planning, how = replace(planning, only=left.hosts), replace(how, batch=how.batch or left.batch)
            output.say(f"continuing with {left.run}: {counted(len(left.hosts), 'host')} left")
        applied = carry_out(how, plan_hosts(planning, session, matrix(), Progress()))
    return answer(arguments, applied)


def answer(arguments: argparse.Namespace, applied: Applied) -> Exit:
    """Print what was done and return the exit code."""
    from gpusetup.rollout.outcome import exit_of

    def text() -> str:
        from datetime import datetime, timezone

        html = arguments.format == "html"
        return applied_html(applied, datetime.now(timezone.utc)) if html else output.painted(applied_text(applied))

    if arguments.out:
        output.say(applied_text(applied))
    output.answer(arguments.format, applied, text, arguments.out)
    return gravest([exit_of(outcome) for outcome in applied.hosts.values()])


def applying(arguments: argparse.Namespace, *, keep: Literal["", "anew", "on"], verify: bool = True) -> Applying:
    """Return how to carry out plans: the arguments of `add_batches` and `options.add_draining`, and these."""
    from gpusetup.rollout.options import Applying

    options.check_numbers(arguments, "max_fail", "max_fail_domain")
    return Applying(
        check=arguments.check,
        verify=arguments.verify if verify else "never",
        batch=arguments.batch,
        max_fail=arguments.max_fail,
        max_fail_domain=arguments.max_fail_domain,
        keep=keep,
        freeing=options.freeing(arguments),
    )


def _planning(arguments: argparse.Namespace) -> Planning:
    from gpusetup.cli.lock import load_lock
    from gpusetup.rollout.batches import batches
    from gpusetup.rollout.options import Planning

    batches((), arguments.batch)  # reject a wrong size before contacting hosts
    for fixed in ("lock", "plan"):
        if getattr(arguments, fixed):
            options.refuse_beside(arguments, f"--{fixed}", "its versions are fixed", "--want", "--upgrade")
    wishes = wishes_of(arguments)
    return Planning(
        wishes=replace(wishes, reboot="never") if arguments.stage else wishes,
        lock=load_lock(arguments.lock) if arguments.lock else None,
        keep_driver=arguments.keep_driver,
        image=bool(arguments.stage),
        made=load_plan(arguments.plan) if arguments.plan else None,
        recorded=_last_lock if arguments.recorded else None,
    )


def _last_lock(name: str, facts: HostFacts) -> HostLock:
    lock = record_of(facts).lock
    if lock == NO_LOCK:
        raise PreflightError("GS-804", f"no apply on record on {name}", hint="gpusetup apply")
    return lock


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T[\d:.]+(?:Z|[+-]\d\d:\d\d)?")
WORDS: dict[str, str] = tables()["outcomes"]


def applied_text(applied: Applied) -> str:
    """Return the report as text."""
    groups = grouped(applied.hosts, _host, _without_name)
    blocks = [_block(names, text) for names, text in groups]
    spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in applied.seconds.items())
    states = [outcome.state for outcome in applied.hosts.values()]
    tail = [tally(states), f"time: {spent}", f"log: {applied.log}"]
    return "\n".join([*blocks, "", *tail]) + "\n"


def _without_name(name: str, outcome: HostOutcome) -> HostOutcome:
    told = structs.asdict(outcome.failure).items() if outcome.failure is not None else ()
    alike = {slot: common(text, name) for slot, text in told if text}
    return structs.replace(
        outcome,
        failure=outcome.failure and structs.replace(outcome.failure, **alike),
        refusals=refusals_without_name(name, outcome.refusals),
        warnings=tuple(common(text, name) for text in outcome.warnings),
        verified=_TIME.sub(r"\1", outcome.verified),
    )


def _block(names: list[str], told: str) -> str:
    first, *rest = told.splitlines()
    count = f" ({len(names)} hosts)" if len(names) > 1 else ""
    return "\n".join([*_wrap(f"{in_short(names)}{count}: {first}", ""), *rest])


def _host(outcome: HostOutcome) -> str:
    simulated = " (simulated GPU)" if outcome.simulated else ""
    word = (
        WORDS["done"] + ", but not all of it is in effect"
        if outcome.state == "done" and outcome.waits
        else WORDS[outcome.state]
    )
    lines = [f"{word}{simulated}"]
    if outcome.stack is not None and outcome.state not in {"refused", "unreachable"}:
        lines += _wrap(stack_line(outcome.stack))
    for refusal in outcome.refusals:
        lines += refusal_lines(refusal)
    lines += failure_lines(outcome)
    for text in outcome.pending:
        lines += _wrap(text if outcome.state == "postponed" else f"reboot pending: {text}")
    for text in outcome.waits:
        lines += _wrap(f"waits: {text}")
    if outcome.state == "pending-reboot":
        lines += _wrap("next: reboot the host, then run the same command again; or give --reboot when-needed")
    if outcome.state == "postponed":
        lines += _wrap("next: run the same command again; --drain-wait and --busy-wait set how long it waits")
    lines += _checks(outcome)
    for text in outcome.warnings:
        if outcome.state != "unchanged" or NO_EFFECT in text:  # a second run repeats only this
            lines += _wrap(f"note: {text}")
    return "\n".join(lines)


def _checks(outcome: HostOutcome) -> list[str]:
    lines = []
    for check in outcome.checks:
        if check.verdict in {"fail", "warn"}:
            lines += _wrap(f"{check.verdict}: {check.id}: {check.text}")
    if outcome.checks:
        verdicts = [check.verdict for check in outcome.checks]
        counts = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
        lines += _wrap(f"verified: {counts}")
        skipped = [check.id for check in outcome.checks if check.verdict in {"skip", "unsupported"}]
        if skipped:
            why = " (the GPU is simulated)" if outcome.simulated else ""
            lines += _wrap(f"not judged{why}: {', '.join(skipped) if len(skipped) <= 8 else f'{len(skipped)} checks'}")
    elif outcome.verified:
        lines += _wrap(f"verified: {outcome.verified}")
    return lines


def _wrap(text: str, indent: str = "  ") -> list[str]:
    return output.wrapped(text, indent, "    ") if text.strip() else []


_TONES: dict[str, Verdict] = {
    "done": "pass", "unchanged": "pass", "nothing-to-do": "skip", "pending-reboot": "warn", "postponed": "warn",
    "not-started": "skip",
}  # fmt: skip
_SHORT = {
    "pending-reboot": "reboot pending", "postponed": "postponed", "refused": "refused", "not-started": "not started",
    "verify-failed": "verification FAILED", "unreachable": "no answer",
}  # fmt: skip
"""Labels of states whose sentence is too long."""


def applied_html(applied: Applied, made: datetime) -> str:
    """Return the page of an apply: each host with its state, changes and checks."""
    from gpusetup.model import stamp
    from gpusetup.report.html import to_html
    from gpusetup.report.model import Report

    return to_html(
        Report(
            title=f"Changes on {counted(len(applied.hosts), 'host')}",
            started=stamp(made),
            seconds=round(sum(applied.seconds.values()), 1),
            program=f"gpusetup {__version__}",
            hosts=tuple(_report(name, outcome) for name, outcome in applied.hosts.items()),
        )
    )


def _report(name: str, outcome: HostOutcome) -> HostReport:
    from gpusetup.report.model import HostReport, Row

    return HostReport(
        name=name,
        state=_SHORT.get(outcome.state) or WORDS[outcome.state],
        tone=_TONES.get(outcome.state, "fail"),
        problem=_problem(outcome),
        rows=tuple(Row(label=label, text=text) for label, text in _rows(outcome) if text),
        results=outcome.checks,
        seconds=outcome.seconds,
        simulated=outcome.simulated,
    )


def _problem(outcome: HostOutcome) -> str:
    told = [
        "\n".join(filter(None, (f"{item.message} [{item.reference}]", item.note, item.hint)))
        for item in outcome.refusals
    ]
    if outcome.failure is not None:
        failure = outcome.failure
        reference = f" [{failure.reference}]" if failure.reference else ""
        told.append(f"{outcome.failed_at}: {failure.message}{reference}. {failure.hint or ''}".strip())
    return "\n".join(told)


def _rows(outcome: HostOutcome) -> Iterator[tuple[str, str]]:
    yield "machine", stack_line(outcome.stack) if outcome.stack is not None else ""
    yield "before", outcome.now
    for action in outcome.actions:
        yield action.kind, f"{action.what}; because {action.why}"
    yield "removed", ", ".join(outcome.removals)
    yield "held", ", ".join(outcome.holds)
    yield "reboot", outcome.reboot_why if outcome.reboot else ""
    yield "pending", "; ".join((*outcome.pending, *outcome.waits))
    yield "verified", outcome.verified
    for text in outcome.warnings:
        yield "note", text
    spent = (f"{role[4:]} {seconds:.1f} s" for role, seconds in outcome.phases.items() if role.startswith("gpu_"))
    yield "time", ", ".join(spent)
