"""Everything that `gpusetup export monitoring` writes, by its file name."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpusetup.monitoring.rules import (
    Alert,
    Dashboard,
    Panel,
    alert_rules,
    alerts,
    dashboards,
    expression,
    metrics,
    recording_rules,
    rule_tests,
)

_DATA = Path(__file__).parent / "data"


def page() -> str:
    """Return the HTML page with all dashboards; it needs no other file, and no network but Prometheus."""
    told = msgspec.json.encode(dashboards()).decode().replace("</", "<\\/")
    return _DATA.joinpath("page.html").read_text(encoding="utf-8").replace("@DASHBOARDS@", told)


_COLUMNS = 24
_HEIGHT = {"stat": 4, "timeseries": 8, "table": 8}
_SCHEMA = 39
"""The schema of Grafana 10 and newer."""
_CHOSEN = {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def document(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana imports it."""
    return {
        "uid": dashboard.id,
        "title": dashboard.title,
        "tags": ["gpu", "gpusetup"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [_CHOSEN, *(_choice(label, dashboard.by) for label in dashboard.by)]},
        "panels": list(_panels(dashboard)),
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Yield the panels, laid out in rows from left to right."""
    left = top = below = 0
    for number, panel in enumerate(dashboard.panels, 1):
        if left + panel.width > _COLUMNS:
            left, top = 0, below
        yield _panel(number, panel, {"h": _HEIGHT[panel.kind], "w": panel.width, "x": left, "y": top})
        left, below = left + panel.width, max(below, top + _HEIGHT[panel.kind])


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    table = panel.kind == "table"
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {},
        "targets": [
            {
                "refId": "A",
                "datasource": _DATASOURCE,
                "expr": panel.expr,
                "legendFormat": panel.legend,
                "instant": table,
                "range": not table,
                "format": "table" if table else "time_series",
            }
        ],
    }


def _choice(label: str, by: tuple[str, ...]) -> dict[str, Any]:
    """Return a variable for a label's values, narrowed by the variables before it."""
    before = by[: by.index(label)]
    narrowed = "gpu:temperature:celsius" + (
        "{" + ",".join(f'{name}=~"${name}"' for name in before) + "}" if before else ""
    )
    return {
        "type": "query",
        "name": label,
        "label": label,
        "datasource": _DATASOURCE,
        "query": {"query": f"label_values({narrowed}, {label})", "refId": label},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
    }


_RECORDING, _ALERTS, _TESTS = "rules/gpusetup-recording.yml", "rules/gpusetup-alerts.yml", "rules/gpusetup-tests.yml"
_GENERATED = "# Written by `gpusetup export monitoring`: change it there, or copy it under another name.\n"
_XIDS = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT")


def files(runbook: str = "") -> dict[str, str]:
    """Return each file's text by its name."""
    found = {
        _RECORDING: _yaml(recording_rules()),
        _ALERTS: _yaml(alert_rules(runbook)),
        _TESTS: _yaml(rule_tests(tuple(name.partition("/")[2] for name in (_RECORDING, _ALERTS)))),
        **{path.name: path.read_text(encoding="utf-8") for path in sorted(_DATA.joinpath("examples").iterdir())},
        "dcgm-counters.csv": "\n".join(counters(renamed=False)) + "\n",
        "dcgm-4.7-counters.csv": "\n".join(counters(renamed=True)) + "\n",
        "dashboards.html": page(),
        "alerts.md": "\n".join(_pages()) + "\n",
    }
    boards = {board.id: json.dumps(document(board), indent=1) + "\n" for board in dashboards()}
    return found | {f"dashboards/{name}.json": text for name, text in boards.items()}


def alert_page(alert: Alert) -> str:
    """Return the page of an alert."""
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


def counters(*, renamed: bool) -> Iterator[str]:
    """Yield the lines of the counters that the rules need; the exporter's default list lacks most health counters."""
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
