"""The report as the JSON document that scripts read: per host a list of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from gpusetup.model.examined import VerifyReport, VerifySummary
from gpusetup.report.model import counts

if TYPE_CHECKING:
    from gpusetup.report.model import HostReport, Report

__all__ = ["to_document"]


def to_document(report: Report) -> dict[str, Any]:
    """Return the document."""
    document = VerifyReport(
        ok=report.ok,
        level=report.level,
        started=report.started,
        seconds=report.seconds,
        program=report.program,
        hosts={host.name: host.results for host in report.hosts},
        summary={host.name: _summary(host) for host in report.hosts},
    )
    told: dict[str, Any] = msgspec.to_builtins(document)
    return told


def _summary(host: HostReport) -> VerifySummary:
    return VerifySummary(
        verdict=host.verdict,
        counts=counts(host.results),
        seconds=host.seconds,
        rows={row.label: row.text for row in host.rows},
        state=host.state or UNSET,
        problem=host.problem or UNSET,
        simulated=True if host.simulated else UNSET,
    )
