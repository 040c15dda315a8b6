"""A plan as one HTML page: what changes where, and why; hosts that are told the same are told it once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli.plan_text import download_text, groups_of, size_text, stack_line, summary, told_of
from gpusetup.components import judge
from gpusetup.drive.causes import counted, in_short
from gpusetup.report.page import page, stamp
from gpusetup.report.topology import picture, topology_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from gpusetup.cli.plan_text import Row
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.plan import HostPlan, Plan

_COLOURS = {"change": "warn", "unchanged": "pass", "nothing-to-do": "skip"}
_WORDS = {
    "change": "changes", "unchanged": "stays", "nothing-to-do": "nothing to do", "refused": "refused",
    "unreachable": "no answer", "failed": "failed",
}  # fmt: skip


def plan_html(plan: Plan, made: datetime, facts: Mapping[str, HostFacts], batches: Sequence[Row] = ()) -> str:
    """Return the page."""
    return page(
        "plan",
        title=f"Plan for {counted(len(plan.hosts), 'host')}",
        made=stamp(made),
        told=["nothing was changed"],
        summary=summary(plan),
        batches=batches,
        groups=[(names, told_of(names, plan)) for names, _ in groups_of(plan)],
        words=_WORDS,
        colours={state: _COLOURS.get(state, "fail") for state in _WORDS},
        short=in_short,
        size=size_text,
        download=download_text,
        stack=_stack,
        picture=lambda name: _picture(facts.get(name)),
    )


def _picture(host: HostFacts | None) -> str:
    return picture(topology_of(judge.probed(host))) if host is not None else ""


def _stack(host: HostPlan) -> str:
    return stack_line(host.stack) if host.stack is not None else ""
