"""The tables behind the rules: what each exporter calls a figure, and what is an alert."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from gpusetup.recovery.table import numbers

_DATA = Path(__file__).parent / "data"


class Series(Struct, frozen=True, forbid_unknown_fields=True):
    """A figure under one exporter's name; `scale` turns its unit into ours."""

    metric: str
    scale: float = 1.0
    percent_before: str = ""
    """The same name means percent before this version of DCGM, and a ratio from it on."""

    @property
    def exporter(self) -> Literal["dcgm", "smi"]:
        """Return which exporter calls it so."""
        return "dcgm" if self.metric.startswith("DCGM_") else "smi"


class Metric(Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of a GPU under our name, whoever exports it."""

    name: str
    title: str
    unit: str
    help: str
    series: tuple[Series, ...]
    type: Literal["gauge", "counter"] = "gauge"


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    """Values over time under our names, a minute apart, and the moment at which one looks."""

    given: dict[str, str]
    at: str


class Alert(Struct, frozen=True, forbid_unknown_fields=True):
    """What is worth a person's time, why, and what to do."""

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
    """Labels that the alert has in its tests beside those of what it is about."""


class Panel(Struct, frozen=True, forbid_unknown_fields=True):
    """One picture of a dashboard."""

    title: str
    expr: str
    unit: str = "short"
    legend: str = "{{instance}} GPU {{gpu}}"
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    width: int = 12


class Dashboard(Struct, frozen=True, forbid_unknown_fields=True):
    """One dashboard; `by` are the labels that a person chooses from."""

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
    """Return every figure."""
    return msgspec.json.decode((_DATA / "metrics.json").read_bytes(), type=_Metrics).metrics


@cache
def alerts() -> tuple[Alert, ...]:
    """Return every alert."""
    text = (_DATA / "alerts.json").read_bytes().replace(b"$RECOVERY_NUMBERS", numbers().encode())
    return msgspec.json.decode(text, type=_Alerts).alerts


@cache
def dashboards() -> tuple[Dashboard, ...]:
    """Return every dashboard."""
    return msgspec.json.decode((_DATA / "dashboards.json").read_bytes(), type=_Dashboards).dashboards
