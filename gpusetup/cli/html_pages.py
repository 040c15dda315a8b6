"""The HTML pages of a plan and of an apply.

Hosts with equal plans share one section; after an apply, each host has its state, changes and checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup import __version__
from gpusetup.cli import plan_text as words
from gpusetup.cli.apply_text import WORDS
from gpusetup.components import judge
from gpusetup.drive.causes import counted, in_short
from gpusetup.report.html import page, stamp, to_html
from gpusetup.report.model import HostReport, Report, Row
from gpusetup.report.topology import picture, topology_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from gpusetup.cli.plan_text import Row as Batch
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.plan import Plan
    from gpusetup.model.run import Applied, HostOutcome
    from gpusetup.model.verdict import Verdict

_COLOURS = {"change": "warn", "unchanged": "pass", "nothing-to-do": "skip"}
_STATES = {
    "change": "changes", "unchanged": "stays", "nothing-to-do": "nothing to do", "refused": "refused",
    "unreachable": "no answer", "failed": "failed",
}  # fmt: skip
_TONES: dict[str, Verdict] = {
    "done": "pass", "unchanged": "pass", "nothing-to-do": "skip", "pending-reboot": "warn", "postponed": "warn",
    "not-started": "skip",
}  # fmt: skip
_SHORT = {
    "pending-reboot": "reboot pending", "postponed": "postponed", "refused": "refused", "not-started": "not started",
    "verify-failed": "verification FAILED", "unreachable": "no answer",
}  # fmt: skip
"""Labels of states whose sentence is too long."""


def plan_html(plan: Plan, made: datetime, facts: Mapping[str, HostFacts], batches: Sequence[Batch] = ()) -> str:
    """Return the page of a plan."""
    return page(
        "plan",
        title=f"Plan for {counted(len(plan.hosts), 'host')}",
        made=stamp(made),
        told=["nothing was changed"],
        summary=words.summary(plan),
        batches=batches,
        groups=[(names, words.shared_plan(names, plan)) for names, _ in words.groups_of(plan)],
        words=_STATES,
        colours={state: _COLOURS.get(state, "fail") for state in _STATES},
        short=in_short,
        size=words.size_text,
        download=words.download_text,
        away=words.downtime_text,
        jobs=words.jobs_text,
        work=words.work_text,
        stack=words.recorded_stack,
        picture=lambda name: _picture(facts.get(name)),
    )


def _picture(host: HostFacts | None) -> str:
    return picture(topology_of(judge.probed(host))) if host is not None else ""


def applied_html(applied: Applied, made: datetime) -> str:
    """Return the page of an apply."""
    return to_html(
        Report(
            title=f"What was done to {counted(len(applied.hosts), 'host')}",
            started=stamp(made),
            seconds=round(sum(applied.seconds.values()), 1),
            program=f"gpusetup {__version__}",
            hosts=tuple(_host(name, outcome) for name, outcome in applied.hosts.items()),
        )
    )


def _host(name: str, outcome: HostOutcome) -> HostReport:
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
    yield "machine", words.stack_line(outcome.stack) if outcome.stack is not None else ""
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
