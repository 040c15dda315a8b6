"""What a benchmark found: bounds of figures and of ratios, the table, the picture, and that the command records it."""

import json
import sys
import types
import xml.etree.ElementTree as ET

import pytest

from bench import __main__ as bench
from bench.found import Found, Record, Row, page, picture, records, table

RECT = "{http://www.w3.org/2000/svg}rect"
FAST = Row(what="asking", value=90.0, unit="ms", plain=10.0, bound=10, of="ratio")
SLOW = Row(what="telling", value=120.0, unit="ms", plain=10.0, bound=10, of="ratio")
ALONE = Row(what="memory", value=30.0, unit="MB", bound=60)


def bars(found, kind):
    return [float(one.get("width")) for one in ET.fromstring(picture(found)).iter(RECT) if one.get("class") == kind]


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (FAST, True),
        (SLOW, False),
        (ALONE, True),
        (Row(what="reports", value=9_999, unit="a minute", bound=10_000, least=True), False),
        (Row(what="reports", value=10_001, unit="a minute", bound=10_000, least=True), True),
        (Row(what="no bound", value=1, unit="s"), None),
    ],
)
def test_a_bound_is_kept_or_missed(row, kept):
    assert row.kept is kept
    assert Found(rows=(row,)).missed is (kept is False)


def test_the_table_leaves_out_what_no_row_has():
    assert table(Found(rows=(ALONE,))).splitlines()[0] == "| what | measured | bound |"
    first, _, fast, slow = table(Found(plain="python", rows=(FAST, SLOW))).splitlines()
    assert first == "| what | measured | python | ratio | bound |"
    assert fast == "| asking | 90 ms | 10 ms | 9.00 | at most 10 times: kept |"
    assert slow.endswith("at most 10 times: **missed** |")


def test_bars_of_one_unit_are_as_long_as_their_figures():
    found = Found(plain="python", rows=(FAST, SLOW))
    fast, slow = bars(found, "ours")[:2]
    assert fast == pytest.approx(slow * 0.75, abs=0.1)
    assert ET.fromstring(picture(found)).get("aria-label").startswith("asking: 90 ms")
    assert bars(found, "plain")[0] == pytest.approx(slow / 12, abs=0.1)


def test_each_unit_has_a_scale_of_its_own_and_what_has_no_bound_shortens_nobody():
    found = Found(rows=(ALONE, Row(what="time", value=1.0, unit="s", bound=4), Row(what="all", value=99.0, unit="s")))
    memory, bounded, unbounded = bars(found, "ours")[:3]
    assert memory == pytest.approx(2 * bounded, abs=0.1)
    assert 2 * memory < unbounded < 2.1 * memory


def test_the_command_records_what_was_found(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "bench.mine", types.SimpleNamespace(main=lambda: Found(plain="p", rows=(SLOW,))))
    monkeypatch.setattr(bench, "found", lambda: {"mine": "What it is."})
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    assert bench.run(["mine"]) == 1
    assert list(tmp_path.iterdir()) == []
    assert bench.run(["--record", "mine"]) == 1
    assert "| telling | 120 ms |" in capsys.readouterr().out
    kept = json.loads((tmp_path / "mine.json").read_text())
    assert (kept["about"], kept["found"]["rows"][0]["value"]) == ("What it is.", 120.0)


def test_the_page_has_every_record_with_its_day_machine_and_picture():
    record = Record(
        name="mine", about="What it is.", date="2026-01-01", machine="two cores", found=Found(rows=(ALONE,))
    )
    text = page([record])
    for words in ("## mine", "Measured 2026-01-01: two cores.", "](../benchmarks/mine.svg)", "| memory | 30 MB |"):
        assert words in text


def test_what_is_recorded_says_of_itself_what_its_benchmark_says():
    kept = {record.name: record.about for record in records()}
    assert kept
    assert {name: about for name, about in bench.found().items() if name in kept} == kept
