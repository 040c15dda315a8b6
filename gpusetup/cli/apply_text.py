"""What apply did, as a page and as text: a block per group of hosts with equal results, what to do next, the times."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from gpusetup.cli.grammar import tables
from gpusetup.cli.plan import refusal_lines, refusals_without_name, stack_line
from gpusetup.drive.causes import common, counted, grouped, in_short
from gpusetup.model.lifecycle import VERIFICATION
from gpusetup.plan.settings import NO_EFFECT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpusetup.model.lifecycle import Applied, HostOutcome
    from gpusetup.model.verdict import Verdict
    from gpusetup.report.model import HostReport

_WIDTH = 80
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T[\d:.]+(?:Z|[+-]\d\d:\d\d)?")
WORDS: dict[str, str] = tables()["outcomes"]


def applied_text(applied: Applied) -> str:
    """Return the report as text."""
    groups = grouped(applied.hosts, _host, _without_name)
    blocks = [_block(names, text) for names, text in groups]
    spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in applied.seconds.items())
    states = [outcome.state for outcome in applied.hosts.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    tail = [f"{counted(len(states), 'host')}: {counts}", f"time: {spent}", f"log: {applied.log}"]
    return "\n".join([*blocks, "", *tail]) + "\n"


def _without_name(name: str, outcome: HostOutcome) -> HostOutcome:
    told = asdict(outcome.failure).items() if outcome.failure is not None else ()
    alike = {slot: common(text, name) for slot, text in told if text}
    return replace(
        outcome,
        failure=outcome.failure and replace(outcome.failure, **alike),
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
    lines += _failure(outcome)
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


def _failure(outcome: HostOutcome) -> list[str]:
    if outcome.state == "interrupted" and outcome.failed_at == VERIFICATION:
        return _wrap("in: verification. The changes before it stay; run the same command to verify them")
    if outcome.state == "interrupted":
        return _wrap(
            f"in: {outcome.failed_at}. A package transaction continues on the host; "
            "run the same command to follow it and continue"
        )
    if outcome.failure is None:
        return []
    failure = outcome.failure
    reference = f" [{failure.reference}]" if failure.reference else ""
    lines = _wrap(f"at: {outcome.failed_at}")
    for line in ("\n".join((failure.message or "").splitlines()[:12]) + reference).splitlines():
        lines += _wrap(line)
    for text in (failure.context, failure.note):
        for line in (text or "").splitlines()[:12]:
            lines += _wrap(line)
    hint = failure.hint or "run the same command to resume; see the full log"
    return lines + _wrap(f"hint: {hint}")


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
            lines += _wrap(f"could not be checked{why}: {', '.join(skipped)}")
    elif outcome.verified:
        lines += _wrap(f"verified: {outcome.verified}")
    return lines


def _wrap(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False)


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
    from gpusetup import __version__
    from gpusetup.report.html import stamp, to_html
    from gpusetup.report.model import Report

    return to_html(
        Report(
            title=f"What was done to {counted(len(applied.hosts), 'host')}",
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
    told = [f"{item.message} [{item.reference}]. {item.hint}".strip() for item in outcome.refusals]
    if outcome.failure is not None:
        failure = outcome.failure
        reference = f" [{failure.reference}]" if failure.reference else ""
        told.append(f"{outcome.failed_at}: {failure.message}{reference}. {failure.hint or ''}".strip())
    return "\n".join(told)


def _rows(outcome: HostOutcome) -> Iterator[tuple[str, str]]:
    yield "machine", stack_line(outcome.stack) if outcome.stack is not None else ""
    yield "before", outcome.now
    for action in outcome.actions:
        yield action.kind, f"{action.what}: {action.why}"
    yield "removed", ", ".join(outcome.removals)
    yield "held", ", ".join(outcome.holds)
    yield "reboot", outcome.reboot_why if outcome.reboot else ""
    yield "pending", "; ".join((*outcome.pending, *outcome.waits))
    yield "verified", outcome.verified
    for text in outcome.warnings:
        yield "note", text
    yield "time", ", ".join(f"{role} {seconds:.1f} s" for role, seconds in outcome.phases.items())
