"""Recording rules that give each figure one name and one unit, and the alerts on those names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.monitoring.tables import alerts, metrics
from gpusetup.recovery.xids import catalogue as xids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.monitoring.tables import Alert, Metric, Series

__all__ = ["LABELS", "alert_rules", "expression", "fatal_xids", "recording_rules"]

LABELS = ("instance", "uuid", "gpu", "model")
"""What every figure of a GPU is told apart by, whoever exports it."""
_BY = f"max by ({', '.join(LABELS)})"
_XID_BY = f"max by ({', '.join((*LABELS, 'xid'))})"
_DRIVER_LOG_SECONDS = 600
"""For how long an Xid is recent: alerts last at least as long."""


def recording_rules() -> dict[str, Any]:
    """Return the rules file that turns every exporter's names and units into ours."""
    rules = [{"record": "gpu:smi:info", "expr": _renamed("nvidia_smi_gpu_info", gpu="index", model="name")}]
    rules += [{"record": metric.name, "expr": _recorded(metric)} for metric in metrics()]
    rules += [{"record": "gpu:xid:recent", "expr": " or ".join(_xid_expressions())}]
    present = " or ".join(metric.name for metric in metrics() if metric.unit in ("celsius", "bytes", "percentunit"))
    rules += [{"record": "gpu:count:number", "expr": f"count by (instance) (count by (instance, uuid) ({present}))"}]
    return {"groups": [{"name": "gpusetup-recording", "rules": rules}]}


def alert_rules(runbook: str = "") -> dict[str, Any]:
    """Return the rules file of the alerts; `runbook`: where the page with all of them is served."""
    return {"groups": [{"name": "gpusetup-alerts", "rules": [_rule(alert, runbook) for alert in alerts()]}]}


def expression(alert: Alert) -> str:
    """Return the expression of an alert."""
    return alert.expr.replace("$FATAL_XIDS", fatal_xids())


def fatal_xids() -> str:
    """Return a pattern of the Xids that mean an error of the hardware or the driver."""
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


def _recorded(metric: Metric) -> str:
    return " or ".join(_scaled(series) for series in metric.series)


def _scaled(series: Series) -> str:
    """Return a series under our labels and in our unit."""
    ours = f"{_BY} ({_labelled(series.metric)})"
    if series.percent_before:
        # Under this name DCGM tells percent in some versions and a ratio in others: a ratio is never above 1.
        lately = f"{_BY} ({_labelled(f'max_over_time({series.metric}[1h])')})"
        return f"(({ours} / 100 and {lately} > 1) or {ours})"
    return ours if series.scale == 1 else f"{ours} * {series.scale:.10g}"


def _labelled(expr: str) -> str:
    """Return a series of an exporter under our labels."""
    if "nvidia_smi_" in expr:
        return f"{expr} * on (instance, uuid) group_left (gpu, model) gpu:smi:info"
    return _renamed(expr, uuid="UUID", model="modelName")


def _renamed(expr: str, **labels: str) -> str:
    for ours, theirs in labels.items():
        # nvidia-smi writes GPU-… where other tools leave these letters out.
        expr = f'label_replace({expr}, "{ours}", "$1", "{theirs}", "(?:GPU-)?(.+)")'
    return expr


def _xid_expressions() -> Iterator[str]:
    """Yield what says that an Xid came lately: a count of them, the time of the last, or the last one's number."""
    yield f"({_XID_BY} ({_labelled('DCGM_EXP_XID_ERRORS_COUNT')}) > 0) * 0 + 1"
    when = "(time() - nvidia_smi_xid_last_timestamp_seconds < bool " + f"{_DRIVER_LOG_SECONDS})"
    yield f"{_XID_BY} ({_labelled(when)}) == 1"
    by = ", ".join(LABELS)
    for name in ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"):
        # The number of the last error stays for ever: it counts only after it changed, or when it is seen first.
        minutes = f"{_DRIVER_LOG_SECONDS // 60}m"
        fresh = f"({name} > 0 and (changes({name}[{minutes}]) > 0 or {name} unless {name} offset {minutes}))"
        yield f'(count_values by ({by}) ("xid", {_labelled(fresh)}) > 0) * 0 + 1'
