"""A host compared with its own last good run."""

from __future__ import annotations

import msgspec
import pytest

from gpusetup.errors import BadInputError
from gpusetup.verify.baseline import Baseline, compare, load, record, save
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import judge
from tests.unit.verify.verify_documents import captured


@pytest.fixture
def good():
    return judge(Machine(captured("h200-x1-full")))


def _slower(share):
    document = captured("h200-x1-full")
    document["sections"]["memory"]["0"]["copy"] = [
        value * share for value in document["sections"]["memory"]["0"]["copy"]
    ]
    return judge(Machine(document))


def _verdict(results, name):
    return next(result for result in results if result.id == name)


def test_the_same_run_stays_as_it_was(good):
    assert compare(good, record(good, 1, "2026-11-20")) == good


@pytest.mark.parametrize(("share", "verdict"), [(0.97, "pass"), (0.93, "warn"), (0.83, "fail")])
def test_decay_shows_before_the_floor_is_reached(good, share, verdict):
    own = record(good, 1, "2026-11-20")
    found = _verdict(compare(_slower(share), own), "memory.copy")
    assert found.verdict == verdict
    assert _verdict(_slower(share), "memory.copy").verdict != "fail", "the floor alone would let it through"
    if verdict != "pass":
        assert "2026-11-20" in found.text
        assert found.limit is not None


def test_a_figure_without_a_theory_is_judged_by_the_baseline():
    document = captured("h200-x1-full")
    document["sections"]["workers"]["0"]["open"]["compute_capability"] = "12.0"
    results = judge(Machine(document))
    assert _verdict(results, "matrix.bf16").verdict == "skip"
    own = record(results, 1, "2026-11-20")
    assert _verdict(compare(results, own), "matrix.bf16").verdict == "pass"


def test_latency_is_better_when_it_is_less(good):
    own = record(good, 1, "2026-11-20")
    document = captured("h200-x1-full")
    for row in document["sections"]["launch"]["0"]["rows"]:
        row["stream_us"] *= 2
    assert _verdict(compare(judge(Machine(document)), own), "launch.latency").verdict == "warn"
    for row in document["sections"]["launch"]["0"]["rows"]:
        row["stream_us"] /= 4
    assert _verdict(compare(judge(Machine(document)), own), "launch.latency").verdict == "pass"


def test_it_is_kept_and_read_again(tmp_path, good):
    path = tmp_path / "baseline.json"
    assert load(path).hosts == {}
    save(path, Baseline(hosts={"gpu1": record(good, 1, "2026-11-20")}))
    assert load(path).hosts["gpu1"].gpus == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["baseline.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "other/1"}', '{"hosts": {"a": {"date": 3}}}'])
def test_a_file_that_is_no_baseline_is_refused(tmp_path, text):
    path = tmp_path / "baseline.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError) as caught:
        load(path)
    assert caught.value.reference == "GS-504"


def test_the_file_is_plain_json(tmp_path, good):
    path = tmp_path / "baseline.json"
    save(path, Baseline(hosts={"gpu1": record(good, 1, "2026-11-20")}))
    document = msgspec.json.decode(path.read_bytes())
    assert document["schema"] == "gpusetup/baseline/1"
    assert document["hosts"]["gpu1"]["figures"]["memory.copy"]["GPU 0"] > 4000
