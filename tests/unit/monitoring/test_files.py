"""What `gpusetup export monitoring` writes: the files agree with each other, with the doctor and with verify."""

import json
import re

import pytest
import yaml

from gpusetup.doctor.catalogue import catalogue
from gpusetup.monitoring.files import files, meaning_of
from gpusetup.recovery.table import catalogue as xids
from gpusetup.verify.pages import explained

FILES = files()
RULES = {
    kind: yaml.safe_load(FILES[f"rules/gpusetup-{kind}.yml"])["groups"][0]["rules"] for kind in ("recording", "alerts")
}
TESTS = {group["name"]: group for group in yaml.safe_load(FILES["rules/gpusetup-tests.yml"])["tests"]}
ALERTS = pytest.mark.parametrize("alert", RULES["alerts"], ids=lambda alert: alert["alert"])
BOARDS = pytest.mark.parametrize("board", [name for name in FILES if name.startswith("dashboards/")])
OURS = re.compile(r"gpu:[a-z_]+:[a-z_]+")
DCGM = re.compile(r"\bDCGM_\w+")
THEIRS = {
    "gpusetup_textfile_timestamp_seconds", "gpusetup_textfile_up", "up", "gpusetup_verify_check",
    "gpusetup_verify_timestamp_seconds", "node_systemd_unit_state", "ALERTS",
}  # fmt: skip
RECORDED = {rule["record"]: rule["expr"] for rule in RULES["recording"]}


@ALERTS
def test_every_alert_is_tried_firing_and_silent(alert):
    asked = TESTS[alert["alert"]]["promql_expr_test"]
    assert {bool(question["exp_samples"]) for question in asked} == {True, False}


def test_rules_and_hosts_collect_the_same_counters():
    lists = [FILES[name].splitlines() for name in ("dcgm-counters.csv", "dcgm-4.7-counters.csv")]
    rows = [[line.split(", ") for line in lines if not line.startswith("#")] for lines in lists]
    assert {(len(row), row[1]) for found in rows for row in found} == {(3, "gauge"), (3, "counter")}
    old, new = ({row[0] for row in found} for found in rows)
    asked = set(DCGM.findall(FILES["rules/gpusetup-recording.yml"]))
    assert asked - old - new == {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"}, "its newer name is collected"
    assert old | new <= asked
    assert {"DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_FB_USED_BYTES"} <= new - old


@BOARDS
def test_panels_look_at_recorded_names(board):
    document = json.loads(FILES[board])
    by = {choice["name"] for choice in document["templating"]["list"]} - {"datasource"}
    for panel in document["panels"]:
        expr = panel["targets"][0]["expr"]
        assert set(OURS.findall(expr)) <= set(RECORDED), panel["title"]
        assert not re.search(r"DCGM_|nvidia_smi_", expr), panel["title"]
        assert set(re.findall(r"\$(\w+)", expr)) <= by


@ALERTS
def test_an_alert_has_a_page_that_says_what_the_rule_says(alert):
    page = meaning_of(alert["alert"]).page
    assert "{{" not in page
    assert f"`{alert['labels']['severity']}`" + (f", after {alert['for']}" if "for" in alert else "") in page
    assert f"\n    {alert['expr']}\n" in page
    assert (
        re.sub(r"{{ [$]labels[.](\w+) }}", lambda found: found[1].upper(), alert["annotations"]["description"]) in page
    )
    assert alert["annotations"]["runbook"] == f"gpusetup doctor {alert['alert']}"
    for program, name in re.findall(r"^More: `gpusetup (\w+) --explain (.+)`$", page, re.MULTILINE):
        assert name in (catalogue().causes if program == "doctor" else explained())


@ALERTS
def test_an_alert_looks_at_recorded_names_only(alert):
    assert set(OURS.findall(alert["expr"])) <= set(RECORDED)
    words = set(re.findall(r"\b(?:DCGM|nvidia_smi|node|gpusetup)_\w+", alert["expr"]))
    assert words <= THEIRS, "an exporter's own name would be silent with the next exporter"


def test_which_xids_are_fatal_is_verify_s_word():
    fatal = "|".join(str(number) for number, known in sorted(xids().xids.items()) if known.verdict == "fail")
    found = {alert["alert"]: alert["expr"] for alert in RULES["alerts"]}
    assert found["GpuXidFatal"] == f'gpu:xid:recent{{xid=~"{fatal}"}} == 1'
    assert found["GpuXidApplication"] == f'gpu:xid:recent{{xid!~"{fatal}"}} == 1'


def test_an_alert_links_to_the_page_that_one_serves():
    served = yaml.safe_load(files("https://runbooks.example/alerts.html")["rules/gpusetup-alerts.yml"])
    links = [rule["annotations"].pop("runbook_url") for rule in served["groups"][0]["rules"]]
    assert links == [f"https://runbooks.example/alerts.html#{alert['alert'].lower()}" for alert in RULES["alerts"]]
    assert served["groups"][0]["rules"] == RULES["alerts"]
