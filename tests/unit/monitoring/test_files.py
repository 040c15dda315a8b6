"""What `gpusetup export monitoring` writes."""

import csv
import json
import re
from functools import cache

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from gpusetup.monitoring.files import alert_page
from gpusetup.monitoring.files import files as written
from gpusetup.monitoring.rules import alerts, dashboards, metrics


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
