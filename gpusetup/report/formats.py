"""Render a report in a named format, including the JSON document that scripts read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from gpusetup.model.examined import VerifyReport, VerifySummary
from gpusetup.report.model import counts

if TYPE_CHECKING:
    from gpusetup.report.model import HostReport, Report

FORMATS = ("text", "json", "junit", "html", "prometheus")


def render(report: Report, name: str, *, watched: bool = False) -> str:
    """Return the report as text; a format's module is imported only when used."""
    if name == "junit":
        from gpusetup.report.junit import to_junit

        return to_junit(report)
    if name == "html":
        from gpusetup.report.html import to_html

        return to_html(report)
    if name == "prometheus":
        from gpusetup.report.prometheus import to_prometheus

        return to_prometheus(report)
    if name == "json":
        return msgspec.json.format(msgspec.json.encode(to_document(report)), indent=2).decode() + "\n"
    from gpusetup.report.text import to_text

    return to_text(report, watched=watched)


def to_document(report: Report) -> dict[str, Any]:
    """Return the report's JSON document."""
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
