"""The data of the rules: each exporter's names of a figure, the alerts, the dashboards."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from gpusetup.recovery.table import numbers

_DATA = Path(__file__).parent / "data"


class Series(Struct, frozen=True, forbid_unknown_fields=True):
    """A figure under one exporter's name; `scale` converts its unit to ours."""

    metric: str
    scale: float = 1.0
    percent_before: str = ""
    """Before this version of DCGM the same name means percent, from it on a ratio."""

    @property
    def exporter(self) -> Literal["dcgm", "smi"]:
        """The exporter that uses this name."""
        return "dcgm" if self.metric.startswith("DCGM_") else "smi"


class Metric(Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of a GPU under our name, with its names in all exporters."""

    name: str
    title: str
    unit: str
    help: str
    series: tuple[Series, ...]
    type: Literal["gauge", "counter"] = "gauge"


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    """Values under our names, a minute apart, and the time at which the alert fires or not."""

    given: dict[str, str]
    at: str


class Alert(Struct, frozen=True, forbid_unknown_fields=True):
    """An alert: its expression, what it means, what to do, and cases that test it."""

    name: str
    severity: Literal["critical", "warning", "info"]
    expr: str
    summary: str
    action: str
    sources: tuple[str, ...]
    fires: tuple[Case, ...]
    silent: tuple[Case, ...]
    wait: str = msgspec.field(name="for", default="0m")
    page: str = ""
    check: str = ""
    of: Literal["gpu", "host", "check", "report", "unit"] = "gpu"
    labels: dict[str, str] = {}
    """Further labels of the alert in its tests."""


class Panel(Struct, frozen=True, forbid_unknown_fields=True):
    """One panel of a dashboard."""

    title: str
    expr: str
    unit: str = "short"
    legend: str = "{{instance}} GPU {{gpu}}"
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    width: int = 12


class Dashboard(Struct, frozen=True, forbid_unknown_fields=True):
    """One dashboard; the viewer chooses values of the labels `by`."""

    id: str
    title: str
    panels: tuple[Panel, ...]
    by: tuple[str, ...] = ()


class _Metrics(Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    sources: dict[str, dict[str, str]]
    metrics: tuple[Metric, ...]


class _Alerts(Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    sources: dict[str, dict[str, str]]
    alerts: tuple[Alert, ...]


class _Dashboards(Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    dashboards: tuple[Dashboard, ...]


@cache
def metrics() -> tuple[Metric, ...]:
    """Return all figures."""
    return msgspec.json.decode((_DATA / "metrics.json").read_bytes(), type=_Metrics).metrics


@cache
def alerts() -> tuple[Alert, ...]:
    """Return all alerts."""
    text = (_DATA / "alerts.json").read_bytes().replace(b"$RECOVERY_NUMBERS", numbers().encode())
    return msgspec.json.decode(text, type=_Alerts).alerts


@cache
def dashboards() -> tuple[Dashboard, ...]:
    """Return all dashboards."""
    return msgspec.json.decode((_DATA / "dashboards.json").read_bytes(), type=_Dashboards).dashboards
