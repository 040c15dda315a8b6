"""The Report object that every format renders: hosts with a state, rows of text, check results and figures.

`verify` fills in the results; `apply` adds each host's state and the changes made to it.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from gpusetup.model.verdict import Curves, Figure, Result, Verdict, worst
from gpusetup.report.topology import Topology

GRAVITY: tuple[Verdict, ...] = ("fail", "warn", "pass", "unsupported", "skip")


POSTPONED = "postponed"
"""The state of a host that was skipped because another run is changing it."""


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line about a host besides its checks: its hardware, a change."""

    label: str
    text: str


class HostReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host."""

    name: str
    state: str = ""
    """The outcome of `apply` (`done`, `pending-reboot`, …), or POSTPONED; else empty."""
    tone: Verdict | Literal[""] = ""
    """The verdict in whose colour pages show the state."""
    problem: str = ""
    """Why the host could not be checked, or why its apply failed."""
    own_fault: bool = False
    """The problem is gpusetup's own: it says nothing about the host."""
    rows: tuple[Row, ...] = ()
    results: tuple[Result, ...] = ()
    topology: Topology | None = None
    """How its GPUs connect to the processor, the network and each other."""
    trends: tuple[Curves, ...] = ()
    """Figures over time."""
    seconds: float = 0.0
    simulated: bool = False
    maintenance: str = ""
    """Cloud maintenance now or within the hour; until it ends, failed checks are not blamed on the GPUs."""
    level: str = ""
    """The level reached on this host: lower than the report's if, for example, a GPU was in use."""

    @property
    def verdict(self) -> Verdict:
        """The host's gravest verdict; `skip` if nothing was checked."""
        if self.problem:
            return "skip" if self.state == POSTPONED else "fail"
        return worst([result.verdict for result in self.results if result.verdict in ("fail", "warn", "pass")])

    @property
    def summary(self) -> str:
        """The text of the row `machine`, or an empty string."""
        return next((row.text for row in self.rows if row.label == "machine"), "")


class Report(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The report of one run."""

    title: str
    started: str
    """Date and time, ISO 8601 in UTC."""
    seconds: float
    program: str
    """Name and version of the program that wrote the report."""
    level: str = ""
    hosts: tuple[HostReport, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no host failed."""
        return all(host.verdict != "fail" for host in self.hosts)


def counts(results: Iterable[Result]) -> dict[Verdict, int]:
    """Return how often each verdict occurs, gravest first."""
    found = [result.verdict for result in results]
    return {verdict: found.count(verdict) for verdict in GRAVITY if verdict in found}


WORDS: dict[Verdict, str] = {"pass": "pass", "warn": "WARN", "fail": "FAIL", "skip": "skip", "unsupported": "n/a"}
BLAME = {
    "gpu": "the GPU",
    "driver": "the driver",
    "host": "the machine around the GPU",
    "stack": "the stack that was asked for",
    "environment": "an environment that gpusetup did not make",
    "job": "a running job",
    "gpusetup": "gpusetup itself",
}
"""How texts name what is at fault."""


def figure(value: Figure) -> str:
    """Return a figure as text: whole numbers in full, others with about three significant digits."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def figures(result: Result) -> str:
    """Return `measured unit (expected …, limit …)` without unknown parts; empty if nothing was measured."""
    if not isinstance(result.measured, (int, float)) or isinstance(result.measured, bool):
        return ""
    beside = [
        f"{name} {figure(value)}"
        for name, value in (("expected", result.expected), ("limit", result.limit))
        if isinstance(value, (int, float))
    ]
    return f"{figure(result.measured)} {result.unit}".strip() + (f" ({', '.join(beside)})" if beside else "")


def duration(seconds: float) -> str:
    """Return a duration as readable text."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def counted(host: HostReport) -> str:
    """Return `1 fail, 2 warn, 30 pass, 4 skip`."""
    return ", ".join(f"{number} {verdict}" for verdict, number in counts(host.results).items())
