"""The report as the JSON document that scripts read: per host a list of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.report.model import counts

if TYPE_CHECKING:
    from gpusetup.report.model import HostReport, Report

__all__ = ["SCHEMA", "to_document"]

SCHEMA = "gpusetup/verify/1"


def to_document(report: Report) -> dict[str, Any]:
    """Return the document."""
    return {
        "schema": SCHEMA,
        "ok": report.ok,
        "level": report.level,
        "started": report.started,
        "seconds": report.seconds,
        "program": report.program,
        "hosts": {host.name: [msgspec.to_builtins(result) for result in host.results] for host in report.hosts},
        "summary": {host.name: _summary(host) for host in report.hosts},
    }


def _summary(host: HostReport) -> dict[str, Any]:
    found: dict[str, Any] = {
        "verdict": host.verdict,
        "counts": counts(host.results),
        "seconds": host.seconds,
        "rows": {row.label: row.text for row in host.rows},
    }
    if host.state:
        found["state"] = host.state
    if host.problem:
        found["problem"] = host.problem
    if host.simulated:
        found["simulated"] = True
    return found
