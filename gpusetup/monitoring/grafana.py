"""Dashboards for Grafana, built on our own names: they hold whichever exporter runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.monitoring.tables import Dashboard, Panel

__all__ = ["document"]

_COLUMNS = 24
_HEIGHT = {"stat": 4, "timeseries": 8, "table": 8}
_SCHEMA = 39
"""Grafana 10 and newer read it; older ones are asked to convert."""
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def document(dashboard: Dashboard) -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": dashboard.id,
        "title": dashboard.title,
        "tags": ["gpu", "gpusetup"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [_datasource(), *(_choice(label, dashboard.by) for label in dashboard.by)]},
        "panels": list(_panels(dashboard)),
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Yield the panels, laid out in lines from left to right."""
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


def _datasource() -> dict[str, Any]:
    return {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}


def _choice(label: str, by: tuple[str, ...]) -> dict[str, Any]:
    """Return a choice of a label's values; each choice narrows those behind it."""
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
