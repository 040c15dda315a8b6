"""Render the report as a textfile for node_exporter: verdicts, figures, limits, and a timestamp to alert on."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from gpusetup.report.model import POSTPONED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.model.verdict import Result
    from gpusetup.report.model import HostReport, Report

_VERDICTS = ("pass", "warn", "fail", "skip", "unsupported")
Sample = tuple[dict[str, str], float]


def to_prometheus(report: Report) -> str:
    """Return the exposition text."""
    hosts = [host for host in report.hosts if host.state != POSTPONED]
    results = [(host.name, result) for host in hosts for result in host.results]
    started = datetime.fromisoformat(report.started.replace("Z", "+00:00")).timestamp()
    lines = [
        *metric(
            "gpusetup_verify_ok",
            "Whether no check failed on the host.",
            ((_of(host, report), float(host.verdict != "fail")) for host in hosts),
        ),
        *metric(
            "gpusetup_verify_check",
            "Verdict of each check: 1 for its verdict, 0 for the others.",
            (
                (
                    {"host": name, "check": result.id, "level": result.level, "verdict": verdict},
                    float(result.verdict == verdict),
                )
                for name, result in results
                for verdict in _VERDICTS
            ),
        ),
        *metric(
            "gpusetup_verify_measured",
            "What a check measured, in the unit of its label.",
            _numbers(results, "measured"),
        ),
        *metric(
            "gpusetup_verify_expected",
            "What is usual for this machine, in the unit of its label.",
            _numbers(results, "expected"),
        ),
        *metric(
            "gpusetup_verify_limit",
            "The floor or ceiling a figure is held against, in the unit of its label.",
            _numbers(results, "limit"),
        ),
        *metric(
            "gpusetup_verify_duration_seconds",
            "How long the verification of the host took.",
            ((_of(host, report), host.seconds) for host in hosts),
        ),
        *metric(
            "gpusetup_verify_timestamp_seconds",
            "When the verification began, in seconds since 1970.",
            ((_of(host, report), started) for host in hosts),
        ),
    ]
    return "\n".join(lines) + "\n"


def _of(host: HostReport, report: Report) -> dict[str, str]:
    return {"host": host.name, "level": host.level or report.level}


def _numbers(results: list[tuple[str, Result]], field: str) -> Iterable[Sample]:
    for name, result in results:
        value = getattr(result, field)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield {"host": name, "check": result.id, "unit": result.unit}, float(value)


def metric(name: str, text: str, samples: Iterable[Sample], kind: str = "gauge") -> list[str]:
    """Return the lines of a metric, or none without samples."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    rows = [f"{name}{{{_labels(labels)}}} {value:.10g}" for labels, value in samples]
    return lines + rows if rows else []


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items())


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
