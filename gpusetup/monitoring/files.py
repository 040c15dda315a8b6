"""Everything that `gpusetup export monitoring` writes, by its file name."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpusetup.monitoring.cases import rule_tests
from gpusetup.monitoring.grafana import document
from gpusetup.monitoring.page import page
from gpusetup.monitoring.rules import alert_rules, expression, recording_rules
from gpusetup.monitoring.tables import alerts, dashboards, metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.monitoring.tables import Alert

__all__ = ["alert_page", "counters", "files"]

_RECORDING, _ALERTS, _TESTS = "rules/gpusetup-recording.yml", "rules/gpusetup-alerts.yml", "rules/gpusetup-tests.yml"
_GENERATED = "# Written by `gpusetup export monitoring`: change it there, or copy it under another name.\n"
_XIDS = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT")


def files(runbook: str = "") -> dict[str, str]:
    """Return each file's text by its name."""
    found = {
        _RECORDING: _yaml(recording_rules()),
        _ALERTS: _yaml(alert_rules(runbook)),
        _TESTS: _yaml(rule_tests(tuple(name.partition("/")[2] for name in (_RECORDING, _ALERTS)))),
        "prometheus-example.yml": _yaml(_prometheus()),
        "alertmanager-example.yml": _yaml(_alertmanager()),
        "dcgm-counters.csv": "\n".join(counters(renamed=False)) + "\n",
        "dcgm-4.7-counters.csv": "\n".join(counters(renamed=True)) + "\n",
        "dashboards.html": page(),
        "alerts.md": "\n".join(_pages()) + "\n",
    }
    boards = {board.id: json.dumps(document(board), indent=1) + "\n" for board in dashboards()}
    return found | {f"dashboards/{name}.json": text for name, text in boards.items()}


def alert_page(alert: Alert) -> str:
    """Return what a person should know of an alert."""
    return "\n".join(_page(alert)) + "\n"


def _page(alert: Alert) -> Iterator[str]:
    yield f"## {alert.name}"
    yield ""
    yield f"`{alert.severity}`" + (f", after {alert.wait}" if alert.wait != "0m" else "")
    yield ""
    yield _sentence(alert.summary)
    yield ""
    yield re.sub(r"{{ [$]labels[.](\w+) }}", lambda found: found[1].upper(), alert.action)
    yield ""
    yield f"    {expression(alert)}"
    if alert.page:
        yield ""
        yield f"More: `gpusetup doctor --explain {alert.page}`"
    elif alert.check and not alert.check.startswith("{"):
        yield ""
        yield f"More: `gpusetup verify --explain {alert.check}`"


def _sentence(text: str) -> str:
    plain = re.sub(r"{{ [$]\w+(?:[.]\w+)? }}", "…", text)
    return plain[0].upper() + plain[1:] + "."


def _pages() -> Iterator[str]:
    yield "# What the alerts mean"
    for alert in alerts():
        yield ""
        yield from _page(alert)


def _yaml(value: object) -> str:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, width=110, allow_unicode=True)
    return _GENERATED + text


def _prometheus() -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "30s", "evaluation_interval": "30s"},
        "rule_files": [_RECORDING, _ALERTS],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["localhost:9093"]}]}]},
        "scrape_configs": [
            {"job_name": "gpu", "static_configs": [{"targets": ["gpu-host-1:9400", "gpu-host-1:9100"]}]}
        ],
    }


def _alertmanager() -> dict[str, Any]:
    """Return an example: what is critical at once, the rest together; a silent host speaks for its GPUs."""
    return {
        "route": {
            "receiver": "people",
            "group_by": ["instance", "severity"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [
                {"receiver": "people", "matchers": ['severity="critical"'], "repeat_interval": "2h"},
                {"receiver": "nobody", "matchers": ['severity="info"']},
            ],
        },
        "inhibit_rules": [
            {
                "source_matchers": ['alertname=~"GpuExporterSilent|GpuLost|GpuXidFatal"'],
                "target_matchers": ['severity=~"warning|info"'],
                "equal": ["instance"],
            }
        ],
        "receivers": [
            {"name": "people", "webhook_configs": [{"url": "http://localhost:9999/alerts", "send_resolved": True}]},
            {"name": "nobody"},
        ],
    }


def counters(*, renamed: bool) -> Iterator[str]:
    """Yield the counters that the rules need; the exporter's own list leaves out most of what tells of health."""
    yield "# What dcgm-exporter collects: dcgm-exporter -f FILE"
    yield "# " + ("For DCGM 4.7 and newer" if renamed else "For DCGM up to 4.6") + "; format: field, type, help"
    for metric in metrics():
        names = [series.metric for series in metric.series if series.exporter == "dcgm"]
        if names:
            name = names[-1] if renamed else names[0]
            name = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS" if "CLOCK_THROTTLE" in name else name
            yield f"{name}, {metric.type}, {metric.help.replace(',', ' -')}"
    last, count = _XIDS
    yield f"{'DCGM_FI_DEV_XID_ERROR' if renamed else last}, gauge, number of the last Xid"
    yield f"{count}, gauge, Xids within the last minutes"
