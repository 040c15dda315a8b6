"""gpusetup export monitoring, and the doctor's answer about an alert, from outside."""

import json

from tests.property.test_command_line import run


def test_it_writes_the_files_that_it_names(tmp_path):
    code, out, _ = run(["export", "monitoring", "--out", str(tmp_path / "new"), "--format", "json"])
    assert code == 0
    document = json.loads(out)
    found = sorted(str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*") if path.is_file())
    assert document["files"] == found
    assert "rules/gpusetup-alerts.yml" in found


def test_a_second_run_writes_the_same(tmp_path):
    texts = []
    for _ in range(2):
        run(["export", "monitoring", "--out", str(tmp_path)])
        texts.append({path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()})
    assert texts[0] == texts[1]


def test_the_doctor_explains_an_alert():
    code, out, _ = run(["doctor", "GpuRowRemapFailed"])
    assert code == 0
    assert "ask for another board" in out
    document = json.loads(run(["doctor", "GpuRowRemapFailed", "--format", "json"])[1])
    assert document["cause"] == "row-remap-failed"
    assert run(["doctor", "--explain", "GpuRowRemapFailed"])[1] == out
