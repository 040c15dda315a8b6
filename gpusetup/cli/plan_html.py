"""A plan as one HTML page: what changes where, and why; hosts that are told the same are told it once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup import __version__
from gpusetup.cli.plan_text import download_text, groups_of, size_text, stack_line, summary, told_of
from gpusetup.drive.causes import counted, in_short
from gpusetup.report.page import template

if TYPE_CHECKING:
    from datetime import datetime

    from gpusetup.model.plan import HostPlan, Plan

__all__ = ["plan_html"]

_COLOURS = {"change": "warn", "unchanged": "pass", "nothing-to-do": "skip"}
_WORDS = {
    "change": "changes", "unchanged": "stays", "nothing-to-do": "nothing to do", "refused": "refused",
    "unreachable": "no answer", "failed": "failed",
}  # fmt: skip


def plan_html(plan: Plan, made: datetime) -> str:
    """Return the page."""
    return template("plan.html.j2").render(
        title=f"Plan for {counted(len(plan.hosts), 'host')}",
        summary=summary(plan),
        made=made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        program=f"gpusetup {__version__}",
        groups=[(names, told_of(names, plan)) for names, _ in groups_of(plan)],
        words=_WORDS,
        colours={state: _COLOURS.get(state, "fail") for state in _WORDS},
        short=in_short,
        size=size_text,
        download=download_text,
        stack=_stack,
    )


def _stack(host: HostPlan) -> str:
    return stack_line(host.stack) if host.stack is not None else ""
