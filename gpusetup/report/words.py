"""Figures and counts as words, the same in every format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.report.model import counts

if TYPE_CHECKING:
    from gpusetup.model.verdict import Figure, Result
    from gpusetup.report.model import HostReport

__all__ = ["BLAME", "counted", "duration", "figure", "figures"]

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
