"""Recording rules that give each figure one name and unit, the alerts on these names, and tests of both; their data."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from gpusetup.recovery.table import catalogue as xids
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


LABELS = ("instance", "uuid", "gpu", "model")
"""The labels of every figure of a GPU, from any exporter."""
_BY = f"max by ({', '.join(LABELS)})"
_XID_BY = f"max by ({', '.join((*LABELS, 'xid'))})"
_DRIVER_LOG_SECONDS = 600
"""For so long an Xid is recent; alerts last at least as long."""


def recording_rules() -> dict[str, Any]:
    """Return the rules file that converts every exporter's names and units to ours."""
    rules = [{"record": "gpu:smi:info", "expr": _renamed("nvidia_smi_gpu_info", gpu="index", model="name")}]
    rules += [{"record": metric.name, "expr": " or ".join(map(_scaled, metric.series))} for metric in metrics()]
    rules += [{"record": "gpu:xid:recent", "expr": " or ".join(_xid_expressions())}]
    present = " or ".join(metric.name for metric in metrics() if metric.unit in ("celsius", "bytes", "percentunit"))
    rules += [{"record": "gpu:count:number", "expr": f"count by (instance) (count by (instance, uuid) ({present}))"}]
    return {"groups": [{"name": "gpusetup-recording", "rules": rules}]}


def alert_rules(runbook: str = "") -> dict[str, Any]:
    """Return the rules file of the alerts; `runbook`: the address of the page that explains them."""
    return {"groups": [{"name": "gpusetup-alerts", "rules": [_rule(alert, runbook) for alert in alerts()]}]}


def expression(alert: Alert) -> str:
    """Return the expression of an alert."""
    return alert.expr.replace("$FATAL_XIDS", fatal_xids())


def fatal_xids() -> str:
    """Return a pattern of the Xids whose verdict is fail."""
    return "|".join(str(number) for number, known in sorted(xids().xids.items()) if known.verdict == "fail")


def _rule(alert: Alert, runbook: str) -> dict[str, Any]:
    annotations = {
        "summary": f"{_SUBJECT[alert.of]}{alert.summary}",
        "description": alert.action,
        "runbook": f"gpusetup doctor {alert.name}",
    }
    if runbook:
        annotations["runbook_url"] = f"{runbook}#{alert.name.lower()}"
    rule: dict[str, Any] = {"alert": alert.name, "expr": expression(alert)}
    if alert.wait != "0m":
        rule["for"] = alert.wait
    return rule | {"labels": {"severity": alert.severity}, "annotations": annotations}


_SUBJECT = {
    "gpu": "GPU {{ $labels.gpu }} ({{ $labels.model }}) of {{ $labels.instance }}: ",
    "host": "{{ $labels.instance }}: ",
    "check": "",
    "report": "",
    "unit": "",
}


def _scaled(series: Series) -> str:
    """Return the expression of a series with our labels and unit."""
    ours = f"{_BY} ({_labelled(series.metric)})"
    if series.percent_before:
        # Under this name some versions of DCGM export percent and others a ratio, which is never above 1.
        lately = f"{_BY} ({_labelled(f'max_over_time({series.metric}[1h])')})"
        return f"(({ours} / 100 and {lately} > 1) or {ours})"
    return ours if series.scale == 1 else f"{ours} * {series.scale:.10g}"


def _labelled(expr: str) -> str:
    """Return an exporter's expression with our labels."""
    if "nvidia_smi_" in expr:
        return f"{expr} * on (instance, uuid) group_left (gpu, model) gpu:smi:info"
    return _renamed(expr, uuid="UUID", model="modelName")


def _renamed(expr: str, **labels: str) -> str:
    for ours, theirs in labels.items():
        # nvidia-smi writes GPU-… where other tools leave these letters out.
        expr = f'label_replace({expr}, "{ours}", "$1", "{theirs}", "(?:GPU-)?(.+)")'
    return expr


def _xid_expressions() -> Iterator[str]:
    """Yield expressions for a recent Xid: from a count, from the time of the last, and from the number of the last."""
    yield f"({_XID_BY} ({_labelled('DCGM_EXP_XID_ERRORS_COUNT')}) > 0) * 0 + 1"
    when = "(time() - nvidia_smi_xid_last_timestamp_seconds < bool " + f"{_DRIVER_LOG_SECONDS})"
    yield f"{_XID_BY} ({_labelled(when)}) == 1"
    by = ", ".join(LABELS)
    for name in ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"):
        # The last error's number never goes away: it counts after a change, and when the series is new.
        minutes = f"{_DRIVER_LOG_SECONDS // 60}m"
        fresh = f"({name} > 0 and (changes({name}[{minutes}]) > 0 or {name} unless {name} offset {minutes}))"
        yield f'(count_values by ({by}) ("xid", {_labelled(fresh)}) > 0) * 0 + 1'


_UUID = "5f4f9a1c-0000-4000-8000-00000000000{}"
_MODEL = "NVIDIA H100 80GB HBM3"
_INSTANCE = "(instance)"
"""Placeholder for the instance, which is the name of the case."""
_NUMBER = re.compile(r"(^|[ +])(-?[\d.]+)")
"""A value or a step, but not the number of repetitions behind an x."""
_XID = {
    "dcgm counter": 'DCGM_EXP_XID_ERRORS_COUNT{{{labels},xid="{xid}"}}',
    "dcgm gauge": "DCGM_FI_DEV_XID_ERRORS{{{labels}}}",
    "dcgm 4.7 gauge": "DCGM_FI_DEV_XID_ERROR{{{labels}}}",
    "smi": 'nvidia_smi_xid_last_timestamp_seconds{{{labels},xid="{xid}"}}',
}
_AS_THEY_ARE = {
    "up": f'up{{instance="{_INSTANCE}",job="gpu"}}',
    "gpusetup_verify_check": f'gpusetup_verify_check{{instance="{_INSTANCE}",host="a1",check="gpu.ecc",level="quick",',
    "gpusetup_verify_timestamp_seconds": f'gpusetup_verify_timestamp_seconds{{instance="{_INSTANCE}",host="a1"}}',
    "gpusetup_textfile_timestamp_seconds": f'gpusetup_textfile_timestamp_seconds{{instance="{_INSTANCE}"}}',
    "gpusetup_textfile_up": f'gpusetup_textfile_up{{instance="{_INSTANCE}"}}',
    "node_systemd_unit_state": f'node_systemd_unit_state{{instance="{_INSTANCE}",name="gpusetup-drift.service",',
}
_LABELS = {
    "gpu": {"instance": _INSTANCE, "uuid": _UUID.format(0), "gpu": "0", "model": _MODEL},
    "host": {"instance": _INSTANCE},
    "check": {"instance": _INSTANCE, "host": "a1", "check": "gpu.ecc", "blame": "gpu"},
    "report": {"instance": _INSTANCE, "host": "a1"},
    "unit": {"instance": _INSTANCE, "name": "gpusetup-drift.service"},
}


class _Sample(NamedTuple):
    """One figure of a case: our name, the GPU, the values."""

    name: str
    gpu: int
    values: str


def rule_tests(rules: tuple[str, ...]) -> dict[str, Any]:
    """Return promtool's test file for these rule files: a group per alert, an instance per case."""
    return {"rule_files": list(rules), "evaluation_interval": "1m", "tests": [_group(alert) for alert in alerts()]}


def _group(alert: Alert) -> dict[str, Any]:
    series: list[dict[str, str]] = []
    questions = []
    for fires, cases in ((True, alert.fires), (False, alert.silent)):
        for number, case in enumerate(cases, 1):
            for way, given in _ways(case):
                instance = f"{'fires' if fires else 'silent'} {number} {way}"
                series += [item | {"series": item["series"].replace(_INSTANCE, instance)} for item in given]
                questions.append(_question(alert, case, instance, fires=fires))
    return {"name": alert.name, "interval": "1m", "input_series": series, "promql_expr_test": questions}


def _question(alert: Alert, case: Case, instance: str, *, fires: bool) -> dict[str, Any]:
    about = {"alertname": alert.name, "alertstate": "firing", "instance": instance}
    labels = _LABELS[alert.of] | about | alert.labels | {"severity": alert.severity}
    expected = [{"labels": f"ALERTS{_braces(labels)}", "value": 1}] if fires else []
    return {"expr": f"ALERTS{_braces(about)}", "eval_time": case.at, "exp_samples": expected}


def _braces(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _ways(case: Case) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the series of a case as each exporter exports them, once for each generation of its names."""
    given = [_sample(key, values) for key, values in case.given.items()]
    if given[0].name.startswith("xid:"):
        for way, form in _XID.items():
            yield way, _xid_series(form, given[0])
        return
    figures = [item for item in given if item.name in _metrics()]
    others = [{"series": _as_it_is(item.name), "values": item.values} for item in given if item not in figures]
    if not figures:
        yield "any exporter", others
    generations = max((len(_metrics()[item.name].series) for item in figures), default=0)
    seen = []
    for generation in range(generations):
        # a figure that was not renamed since keeps its last series
        chosen = [(item, (_metrics()[item.name].series[: generation + 1])[-1]) for item in figures]
        names = [series.metric for _, series in chosen]
        if len({series.exporter for _, series in chosen}) == 1 and names not in seen:
            seen.append(names)
            yield " and ".join(names), [*_series(chosen), *others]


def _series(chosen: list[tuple[_Sample, Series]]) -> list[dict[str, str]]:
    found = []
    for item, series in chosen:
        name = f"{series.metric}{{{_theirs(series.exporter, item.gpu)}}}"
        found.append({"series": name, "values": _in_their_unit(item, series)})
    return found + _infos({item.gpu for item, series in chosen if series.exporter == "smi"})


def _infos(gpus: set[int]) -> list[dict[str, str]]:
    """Return the series with the GPUs' names that nvidia-smi's exporter has."""
    return [
        {"series": f'nvidia_smi_gpu_info{{{_theirs("smi", gpu)},index="{gpu}",name="{_MODEL}"}}', "values": "1x200"}
        for gpu in sorted(gpus)
    ]


def _xid_series(form: str, given: _Sample) -> list[dict[str, str]]:
    number = given.name.partition(":")[2]
    exporter = "smi" if form.startswith("nvidia_smi") else "dcgm"
    values = given.values
    if "LAST" in form.upper():
        values = "60x20"
    elif "xid=" not in form:
        values = f"{number}x20"
    series = [{"series": form.format(labels=_theirs(exporter, 0), xid=number), "values": values}]
    return series + _infos({0} if exporter == "smi" else set())


def _theirs(exporter: str, gpu: int) -> str:
    """Return an exporter's labels of a GPU."""
    uuid = _UUID.format(gpu)
    if exporter == "smi":
        return f'instance="{_INSTANCE}",uuid="{uuid}"'
    return f'instance="{_INSTANCE}",gpu="{gpu}",UUID="GPU-{uuid}",modelName="{_MODEL}",Hostname="node1"'


def _in_their_unit(item: _Sample, series: Series) -> str:
    """Return values in promtool's notation (a+bxn), converted to an exporter's unit."""
    return _NUMBER.sub(lambda found: f"{found[1]}{float(found[2]) / series.scale:.10g}", item.values)


def _as_it_is(name: str) -> str:
    """Return a series that is not a figure of a GPU, with its labels."""
    metric, brace, rest = name.partition("{")
    known = _AS_THEY_ARE[metric]
    return known + rest if brace else known


def _sample(key: str, values: str) -> _Sample:
    name, _, which = key.partition(" ")
    return _Sample(name, int(bool(which)), values)


@cache
def _metrics() -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics()}
