"""What `gpusetup export monitoring` writes; its tables agree with each other, with the doctor and with verify."""

import csv
import json
import re
from functools import cache

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from gpusetup.doctor.catalogue import catalogue
from gpusetup.monitoring import rules
from gpusetup.monitoring.files import alert_page
from gpusetup.monitoring.files import files as written
from gpusetup.monitoring.rules import alert_rules, alerts, dashboards, expression, fatal_xids, metrics, recording_rules
from gpusetup.recovery.table import meaning
from gpusetup.verify.pages import explained


@cache
def files():
    return written()


@cache
def groups():
    return {group["name"]: group for group in yaml.safe_load(files()["rules/gpusetup-tests.yml"])["tests"]}


def test_every_alert_is_tried_firing_and_silent_with_each_exporter_that_has_its_figures():
    for alert in alerts():
        asked = groups()[alert.name]["promql_expr_test"]
        assert {bool(question["exp_samples"]) for question in asked} == {True, False}
    hot = [re.search(r'instance="fires 1 ([^"]+)"', q["expr"]) for q in groups()["GpuHot"]["promql_expr_test"]]
    assert [found[1] for found in hot if found] == [
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
        "nvidia_smi_temperature_gpu",
    ]


def test_values_of_a_test_are_in_the_exporter_s_unit():
    given = [
        series["values"]
        for series in groups()["GpuMemoryFull"]["input_series"]
        if 'instance="fires 1 DCGM_FI_DEV_FB_USED and' in series["series"]
    ]
    assert given == ["80640x40", "81559x40"]  # MiB


@pytest.mark.parametrize("name", ["dcgm-counters.csv", "dcgm-4.7-counters.csv"])
def test_counters_have_three_fields_and_what_the_rules_need(name):
    lines = [line for line in files()[name].splitlines() if not line.startswith("#")]
    rows = list(csv.reader(lines, skipinitialspace=True))
    assert {len(row) for row in rows} == {3}
    assert {row[1] for row in rows} <= {"gauge", "counter"}
    known = {series.metric for metric in metrics() for series in metric.series}
    assert {row[0] for row in rows} <= known | {
        "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR", "DCGM_EXP_XID_ERRORS_COUNT",
    }  # fmt: skip
    assert "DCGM_EXP_XID_ERRORS_COUNT" in {row[0] for row in rows}
    new = {"DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_FB_USED_BYTES"}
    assert (new <= {row[0] for row in rows}) is ("4.7" in name)


def test_panels_lie_beside_each_other_within_the_width():
    for board in dashboards():
        document = json.loads(files()[f"dashboards/{board.id}.json"])
        cells = set()
        for panel in document["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            mine = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & mine, panel["title"]
            cells |= mine
        assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])


def test_a_dashboard_asks_only_for_labels_that_it_lets_people_choose():
    for board in dashboards():
        asked = {name for panel in board.panels for name in re.findall(r"\$(\w+)", panel.expr)}
        assert asked == set(board.by)


def test_a_page_says_what_to_do_without_a_template_s_braces():
    for alert in alerts():
        page = alert_page(alert)
        assert "{{" not in page
        assert page.startswith(f"## {alert.name}\n")


def test_a_link_goes_where_the_page_is_served():
    rules = written("https://runbooks.example/alerts.html")["rules/gpusetup-alerts.yml"]
    assert "https://runbooks.example/alerts.html#gpuxidfatal" in rules


@pytest.mark.parametrize("board", [board.id for board in dashboards()])
def test_grafana_s_own_types_read_a_dashboard_and_lose_nothing(board):
    register_default_plugins()
    document = json.loads(files()[f"dashboards/{board}.json"])
    again = json.loads(json.dumps(Dashboard.from_json(document), cls=JSONEncoder))
    assert kept(document, again) == document


def kept(ours, theirs):
    """What is left of a document where another one has more."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {name: kept(value, theirs[name]) for name, value in ours.items() if name in theirs}
    if isinstance(ours, list) and isinstance(theirs, list):
        return [kept(value, other) for value, other in zip(ours, theirs, strict=True)]
    return theirs


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
