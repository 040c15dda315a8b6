"""The tables of figures and alerts agree with each other, with the doctor and with verify."""

import json
import re

import pytest

from gpusetup.doctor.catalogue import catalogue
from gpusetup.monitoring import rules
from gpusetup.monitoring.rules import alert_rules, expression, fatal_xids, recording_rules
from gpusetup.recovery.table import meaning
from gpusetup.verify.pages import explained

ALERTS = pytest.mark.parametrize("alert", rules.alerts(), ids=lambda alert: alert.name)
OURS = re.compile(r"gpu:[a-z_]+:[a-z_]+")
THEIRS = {
    "gpusetup_textfile_timestamp_seconds", "gpusetup_textfile_up", "up", "gpusetup_verify_check",
    "gpusetup_verify_timestamp_seconds", "node_systemd_unit_state", "ALERTS",
}  # fmt: skip


def recorded():
    return {rule["record"] for rule in recording_rules()["groups"][0]["rules"]}


@ALERTS
def test_an_alert_has_a_page_that_exists(alert):
    assert bool(alert.page) + bool(alert.check) <= 1
    if alert.page:
        assert alert.page in catalogue()
    if alert.check and not alert.check.startswith("{{"):
        assert alert.check in explained()


@ALERTS
def test_an_alert_looks_at_recorded_names_only(alert):
    assert set(OURS.findall(alert.expr)) <= recorded()
    words = set(re.findall(r"\b(?:DCGM|nvidia_smi|node|gpusetup)_\w+", alert.expr))
    assert words <= THEIRS, "an exporter's own name would be silent with the next exporter"


@ALERTS
def test_an_alert_names_its_sources_and_is_tried_both_ways(alert):
    named = json.loads((rules._DATA / "alerts.json").read_text())["sources"]
    assert alert.sources
    assert set(alert.sources) <= set(named)
    assert alert.fires
    assert alert.silent


def test_names_are_given_once():
    for rows in (rules.alerts(), rules.metrics()):
        names = [row.name for row in rows]
        assert len(names) == len(set(names))
    series = [series.metric for metric in rules.metrics() for series in metric.series]
    assert len(series) == len(set(series))


def test_dashboards_look_at_recorded_names():
    for board in rules.dashboards():
        for panel in board.panels:
            assert set(OURS.findall(panel.expr)) <= recorded(), panel.title
            assert not re.search(r"DCGM_|nvidia_smi_", panel.expr), panel.title


def test_which_xids_are_fatal_is_verify_s_word():
    pattern = re.compile(fatal_xids())
    for number in (48, 79, 95, 119):
        assert meaning(number).verdict == "fail"
        assert pattern.fullmatch(str(number))
    for number in (13, 31, 43):
        assert meaning(number).verdict == "warn"
        assert not pattern.fullmatch(str(number))


def test_an_alert_links_to_the_page_that_one_serves():
    rules = alert_rules("https://runbooks.example/alerts.html")["groups"][0]["rules"]
    lost = next(rule for rule in rules if rule["alert"] == "GpuLost")
    assert lost["annotations"]["runbook_url"] == "https://runbooks.example/alerts.html#gpulost"
    assert "runbook_url" not in alert_rules()["groups"][0]["rules"][0]["annotations"]


@ALERTS
def test_no_placeholder_of_ours_is_left_in_an_expression(alert):
    assert "$FATAL" not in expression(alert)
