"""One Report object behind every format: hosts with a state, rows of text, results of checks and their figures.

`verify` fills the results; `apply` adds the state a host is in and what was done to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from gpusetup.model.verdict import Curves, Result, Verdict, worst
from gpusetup.report.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.model.verdict import Figure

GRAVITY: tuple[Verdict, ...] = ("fail", "warn", "pass", "unsupported", "skip")


POSTPONED = "postponed"
"""The state of a host that was left alone because somebody changes it."""


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line about a host beside its checks: what it is, what was changed."""

    label: str
    text: str


class HostReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host."""

    name: str
    state: str = ""
    """What `apply` made of it (`done`, `pending-reboot`, …); empty for `verify` alone."""
    tone: Verdict | Literal[""] = ""
    """How good that state is, where pages show it by a colour."""
    problem: str = ""
    """Why there is nothing to report, such as an unreachable host."""
    rows: tuple[Row, ...] = ()
    results: tuple[Result, ...] = ()
    topology: Topology | None = None
    """How its GPUs reach the processor, the network and each other."""
    trends: tuple[Curves, ...] = ()
    """Figures over time."""
    seconds: float = 0.0
    simulated: bool = False
    maintenance: str = ""
    """What the cloud does to it now or within the hour: until that is over, a failed check is not its GPUs' fault."""
    level: str = ""
    """The level that was reached, where it is another one than the report's: a GPU was in use."""

    @property
    def verdict(self) -> Verdict:
        """The gravest of what was proven; `skip` when nothing was."""
        if self.problem:
            return "skip" if self.state == POSTPONED else "fail"
        return worst([result.verdict for result in self.results if result.verdict in ("fail", "warn", "pass")])

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        return next((row.text for row in self.rows if row.label == "machine"), "")


class Report(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run over hosts."""

    title: str
    started: str
    """Date and time, ISO 8601 in UTC."""
    seconds: float
    program: str
    """Name and version of the program that made it."""
    level: str = ""
    hosts: tuple[HostReport, ...] = ()

    @property
    def ok(self) -> bool:
        """No host failed."""
        return all(host.verdict != "fail" for host in self.hosts)


def counts(results: Iterable[Result]) -> dict[Verdict, int]:
    """Return how often each verdict was given, gravest first."""
    found = [result.verdict for result in results]
    return {verdict: found.count(verdict) for verdict in GRAVITY if verdict in found}


BLAME = {
    "gpu": "the GPU",
    "driver": "the driver",
    "host": "the machine around the GPU",
    "stack": "the stack that gpusetup installed",
    "environment": "an environment that gpusetup did not make",
    "job": "a running job",
}
"""Whose fault a finding is, as people read it."""


def figure(value: Figure) -> str:
    """Return a figure with the digits that mean something."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def figures(result: Result) -> str:
    """Return `measured (expected …, limit …) unit`, as far as they are known."""
    if not isinstance(result.measured, (int, float)) or isinstance(result.measured, bool):
        return ""
    beside = [
        f"{name} {figure(value)}"
        for name, value in (("expected", result.expected), ("limit", result.limit))
        if isinstance(value, (int, float))
    ]
    return f"{figure(result.measured)} {result.unit}".strip() + (f" ({', '.join(beside)})" if beside else "")


def duration(seconds: float) -> str:
    """Return a time for people."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def counted(host: HostReport) -> str:
    """Return `1 fail, 2 warn, 30 pass, 4 skip`."""
    return ", ".join(f"{number} {verdict}" for verdict, number in counts(host.results).items())
