"""Verification now and then: a GPU in use is only looked at, a host that changes is left alone, Prometheus gets a file."""

import os
import subprocess
import threading
from datetime import datetime, timezone
from unittest.mock import Mock

import pytest

from gpusetup.cli.main import main
from gpusetup.content import host_code
from gpusetup.report.formats import to_prometheus
from gpusetup.report.verification import verification_report
from gpusetup.verify import probe
from gpusetup.verify.probe import Observed
from tests.unit.verify.verify_documents import captured, smi_says

NOW = datetime.fromtimestamp(1_800_000_000, timezone.utc)


class Still:
    """Collectors that found what a captured machine told."""

    def __init__(self, document):
        self.quick = {**document["quick"], "facts": document["facts"]}
        self.seconds = {}

    def wait(self, name):
        return self.quick.get(name)

    def finish(self):
        return dict(self.quick)


@pytest.fixture
def observe(probe, monkeypatch):
    """Observe a captured machine; what would run on its GPUs says that it did."""

    def run(name, change=None, work=lambda *_: {"workers": {"0": {"busy": False}}}, **request):
        document = captured(name)
        if change:
            change(document)
        monkeypatch.setattr(probe.collect, "Collection", lambda *_: Still(document))
        monkeypatch.setattr(probe.observe, "on_the_gpus", work)
        return probe.observe.observe({"level": "full", **request})

    return run


def busy(document):
    text = document["quick"]["smi"]["stdout"]
    assert "<gpu_util>0 %</gpu_util>" in text
    document["quick"]["smi"]["stdout"] = text.replace("<gpu_util>0 %</gpu_util>", "<gpu_util>87 %</gpu_util>", 1)


def test_an_idle_gpu_is_measured_and_one_with_programs_or_work_is_left_alone(observe):
    found = observe("h200-x1-quick", when_idle=True)
    assert (found["level"], "left_alone" in found, "workers" in found["sections"]) == ("full", False, True)
    found = observe("h200-x1-busy", when_idle=True)
    assert (found["level"], found["sections"], "(" in found["left_alone"][0]) == ("quick", {}, True)
    assert observe("h200-x1-busy")["level"] == "full", "a person who asks is answered"
    found = observe("h200-x1-quick", lambda document: smi_says(document, "", 9), when_idle=True)
    assert (found["level"], "nvidia-smi does not answer" in found["left_alone"][0]) == ("quick", True)
    found = observe("h200-x1-quick", busy, when_idle=True)  # whose program cannot be seen
    assert (found["level"], found["left_alone"]) == ("quick", ["GPU 0: 87 % busy"])


def test_a_budget_ends_what_is_measured(observe):
    ended = threading.Event()
    found = observe("h200-x1-quick", work=lambda *_: ended.wait(60) or {}, budget=0.3)
    ended.set()
    assert (found["level"], found["sections"], found["left_alone"]) == ("quick", {}, ["the budget of 0.3 s was over"])
    assert "joined" not in found["gpus"][0], "what was stopped may still end"
    assert observe("h200-x1-quick", budget=30)["level"] == "full"


def test_a_part_that_raises_costs_the_others_nothing(observe, probe, monkeypatch):
    monkeypatch.setattr(probe.observe.write_bandwidth, "measure", Mock(side_effect=KeyError("ports")))
    found = observe("h200-x1-quick")["sections"]
    assert (found["rdma"]["message"], "workers" in found) == ("KeyError: 'ports'", True)


def test_a_level_that_was_not_reached_is_not_reported():
    document = captured("h200-x1-quick")
    document["left_alone"] = ["GPU 0: 87 % busy"]
    report = verification_report({"n": document}, level="full", started=NOW, seconds=1.0)
    assert {result.level for result in report.hosts[0].results} == {"quick"}
    assert 'gpusetup_verify_timestamp_seconds{host="n",level="quick"}' in to_prometheus(report)
    assert any("87 %" in row.text for row in report.hosts[0].rows)


def test_beside_somebody_who_changes_the_host_nothing_is_looked_at(tmp_path, monkeypatch, capsys):
    owner = host_code("gpu_host.owner")
    monkeypatch.setattr(owner, "FOLDER", str(tmp_path / "state"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    looked = []
    monkeypatch.setattr(probe, "observe_here", lambda *_: looked.append(1) or captured("h200-x1-quick"))
    who = {"controller": "head", "user": "ann", "run": "20260101", "home": "elsewhere", "alive": []}
    token = owner.take(owner.FOLDER, who, "digest")
    textfile = tmp_path / "gpusetup-verify.prom"
    textfile.write_text("the last answer")
    assert main(["verify", "--level", "quick", "--when-idle", "--textfile", str(tmp_path)]) == 9
    assert "ann on head" in capsys.readouterr().out
    assert (looked, textfile.read_text()) == ([], "the last answer")
    owner.release(owner.FOLDER, token)
    assert main(["verify", "--level", "quick", "--when-idle", "--textfile", str(tmp_path)]) == 0
    assert "gpusetup_verify_ok" in textfile.read_text()
    assert (looked, owner.present(owner.FOLDER)) == ([1], None)


def test_a_turn_keeps_an_apply_away_and_one_that_was_cut_is_over(tmp_path, monkeypatch):
    owner, folder = host_code("gpu_host.owner"), str(tmp_path)
    monkeypatch.setattr(owner, "FOLDER", folder)
    who = {"controller": "head", "user": "ann", "run": "1", "home": "elsewhere", "alive": []}
    with owner.measuring(), pytest.raises(host_code("gpu_host.failure").HostFailure, match="changing this host"):
        owner.take(folder, who, "digest", patience=-1.0)
    dead = subprocess.Popen(["true"])
    dead.wait()
    owner.take(folder, {**who, "home": "measures", "run": f"verify-{dead.pid}-1"}, "")
    with owner.measuring():
        assert owner.present(folder)["run"].startswith(f"verify-{os.getpid()}-")


def test_a_textfile_is_whole_or_not_there(tmp_path, monkeypatch, printed, says):
    monkeypatch.setattr(probe, "observe_in_turn", lambda *_: Observed(captured("h200-x1-quick")))
    assert printed(0, "verify", "--textfile", tmp_path)["ok"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["gpusetup-verify.prom"]
    (tmp_path / "gpusetup-verify.prom").unlink()
    (tmp_path / "gpusetup-verify.prom").mkdir()  # what cannot be replaced
    assert "GS-513" in says(3, "verify", "--textfile", str(tmp_path), "--out", str(tmp_path / "report"))
    assert "gpu.count" in (tmp_path / "report").read_text(encoding="utf-8"), "what was measured is told"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpusetup-verify.prom", "report"], "no half of one"
    monkeypatch.undo()  # nothing is measured
    for option, code in (("--textfile", "GS-513"), ("--baseline", "GS-505")):
        assert code in says(3, "verify", option, tmp_path / "gone/x"), option


def test_facts_that_come_too_late_are_said_to_be_missing(observe):
    assert observe("h200-x1-quick", lambda document: document.update(facts=None))["facts"].keys() == {"error"}


def test_a_program_that_begins_during_the_measurement_is_told(observe):
    process = "<processes><process_info><pid>7</pid><type>C</type></process_info></processes></gpu>"
    seen = []

    def work(*_):
        smi = seen[0]["quick"]["smi"]
        smi["stdout"] = smi["stdout"].replace("</gpu>", process)
        return {}

    (gpu,) = observe("h200-x1-quick", seen.append, work)["gpus"]
    assert (gpu["processes"], [one["pid"] for one in gpu["joined"]]) == ([], ["7"])


def test_a_failure_within_the_budget_is_not_taken_for_its_end(observe):
    with pytest.raises(OSError, match="no space"):
        observe("h200-x1-quick", work=Mock(side_effect=OSError("no space")), budget=30)
