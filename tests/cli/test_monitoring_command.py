"""gpusetup export monitoring, and the doctor's answer about an alert, from outside."""

import json

from tests.property.test_command_line import run


def test_it_writes_the_files_that_it_names_and_the_same_again(tmp_path):
    texts, new = [], tmp_path / "new"
    for _ in range(2):
        code, out, _ = run(["export", "monitoring", "--out", str(new), "--format", "json"])
        assert code == 0
        texts.append({str(path.relative_to(new)): path.read_text() for path in new.rglob("*") if path.is_file()})
    assert json.loads(out)["files"] == sorted(texts[0])
    assert "rules/gpusetup-alerts.yml" in texts[0]
    assert texts[0] == texts[1]


def test_the_doctor_explains_an_alert():
    code, out, _ = run(["doctor", "GpuRowRemapFailed"])
    assert code == 0
    assert "ask for another board" in out
    document = json.loads(run(["doctor", "GpuRowRemapFailed", "--format", "json"])[1])
    assert document["cause"] == "row-remap-failed"
    assert run(["doctor", "--explain", "GpuRowRemapFailed"])[1] == out
