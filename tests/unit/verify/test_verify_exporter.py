"""monitoring.exporter and monitoring.figures: what an H100 under load told its exporter and nvidia-smi, and what can be wrong."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from gpusetup.monitoring.rules import metrics
from gpusetup.verify.answers import meanings
from tests.unit.verify.verify_documents import captured, results

TEXTFILE = Path(__file__).resolve().parents[2] / "fixtures/textfile"
UUID = "6dd68cc9-e7e1-dc7f-da28-0951b03a145f"
DCGM = """DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-%(uuid)s",modelName="NVIDIA H100 80GB HBM3"} 59
DCGM_FI_DEV_FB_TOTAL{gpu="0",UUID="GPU-%(uuid)s"} 81559
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-%(uuid)s"} 1395
DCGM_FI_DEV_ENFORCED_POWER_LIMIT{gpu="0",UUID="GPU-%(uuid)s"} 700""" % {"uuid": UUID}  # noqa: UP031


def document(**changes: Any) -> dict[str, Any]:
    """The observations of a machine whose GPU is the captured H100, with a textfile beside a node_exporter."""
    found = captured("h200-x1-quick")
    found["quick"]["smi"]["stdout"] = (TEXTFILE / "smi.xml").read_text()
    lines = [line for line in (TEXTFILE / "nvml.prom").read_text().splitlines() if not line.startswith("#")]
    exporter = {"kind": "textfile", "listen": "127.0.0.1:9100", "status": 200, "error": "", "age": 3.0, "lines": lines}
    found["quick"]["exporter"] = exporter | changes
    return found


def verdicts(found: dict[str, Any]) -> tuple[str, str]:
    told = results(found)
    return told["monitoring.exporter"].verdict, told["monitoring.figures"].verdict


def text(found: dict[str, Any], name: str = "exporter") -> str:
    return results(found)[f"monitoring.{name}"].text


SLICE = f'{{gpu="0",UUID="GPU-{UUID}",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"}}'
OF_SLICE = [f"DCGM_FI_DEV_FB_TOTAL{SLICE} 9856", f"DCGM_FI_DEV_GPU_TEMP{SLICE} 59"]


@pytest.mark.parametrize(
    "changes", [{}, {"kind": "dcgm", "lines": DCGM.splitlines()}, {"kind": "dcgm", "lines": OF_SLICE}],
    ids=["textfile", "dcgm", "slice"],
)  # fmt: skip
def test_the_captured_figures_are_those_of_nvidia_smi(changes):
    """The memory of a slice is not compared with that of its GPU."""
    assert verdicts(document(**changes)) == ("pass", "pass")


def test_without_an_exporter_on_record_nothing_is_judged_and_figures_behind_a_password_are_not_passed():
    found = document()
    found["quick"]["exporter"] = {}
    assert verdicts(found) == ("skip", "skip")
    found = document(kind="dcgm", status=401, lines=[])
    assert (verdicts(found), "password" in text(found, "figures")) == (("pass", "skip"), True)


LINES = document()["quick"]["exporter"]["lines"]
DOWN = [line.replace("gpusetup_textfile_up 1", "gpusetup_textfile_up 0") for line in LINES]


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"status": None, "error": "[Errno 111] Connection refused", "lines": []}, "fail", "Connection refused"),
        ({"status": 500, "error": "HTTP Error 500", "lines": []}, "fail", "does not answer on 127.0.0.1:9100"),
        ({"age": 3600.0}, "fail", "3600 s old"),
        ({"age": None, "error": "/x/gpusetup-gpu.prom: No such file or directory"}, "fail", "No such file"),
        ({"status": 401}, "pass", "asks for a password"),
        ({"listen": "", "status": None}, "pass", "textfile answers"),
        ({"lines": DOWN}, "fail", "the driver did not answer"),
        ({"lines": [*LINES, "node_textfile_scrape_error 1"]}, "warn", ""),  # of a textfile beside ours
    ],
)
def test_an_exporter_that_is_silent_or_old_is_said(changes, verdict, said):
    found = document(**changes)
    assert (verdicts(found)[0], said in text(found)) == (verdict, True), text(found)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nvidia_smi_memory_total_bytes{", "nvidia_smi_memory_total_bytes_x{", ""),
        ("} 85520809984", "} 81559", "memory"),
        ("} 1395000000", "} 1395", "SM clock"),
        ("} 59", "} 5", "temperature"),
        ('nvidia_smi_enforced_power_limit_watts{uuid="%s"} 700' % UUID, 'nvidia_smi_enforced_power_limit_watts{uuid="%s"} 350' % UUID, "power limit is 350"),  # noqa: UP031
        (UUID, "0" * 8, "nothing of GPU 0 and figures of 00000000"),
    ],
)  # fmt: skip
def test_figures_that_are_not_those_of_nvidia_smi_are_said(old, new, said):
    lines = [line.replace(old, new) for line in document()["quick"]["exporter"]["lines"]]
    found = document(lines=lines)
    assert verdicts(found) == ("pass", "fail" if said else "pass")
    assert said in text(found, "figures")


def test_names_and_units_are_those_of_the_tables():
    """DCGM's counters in another unit are another figure: the tables of the rules say which has which."""
    known = {series.metric: series.scale for metric in metrics() for series in metric.series}
    for row in meanings()["exporter_figures"]:
        assert {name: known[name] for name in row["names"]} == row["names"]


def test_a_port_that_speaks_no_http_is_an_answer_too(probe):
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0\r\n"), daemon=True).start()
        found = probe.exporter.services.scrape(f"127.0.0.1:{server.getsockname()[1]}", False, 5)
    assert (found["status"], bool(found["error"])) == (None, True)


def test_the_host_asks_the_exporter_that_its_record_names(probe, tmp_path, monkeypatch):
    (tmp_path / "gpusetup-gpu.prom").write_text("nvidia_smi_temperature_gpu 40\n# HELP x\nother 1\n")
    told = {"kind": "textfile", "listen": "127.0.0.1:9100", "folder": str(tmp_path)}
    record = tmp_path / "state.json"
    record.write_text(json.dumps({"lock": {"wanted": {"monitoring": told}}}))
    module = probe.exporter
    answers = {"status": 200, "text": "nvidia_smi_temperature_gpu 41\nnode_textfile_scrape_error 0\nother 1\n", "error": ""}  # fmt: skip
    monkeypatch.setattr(module.services, "scrape", lambda *_: answers)
    found = module.look(str(record))
    assert found["lines"] == ["nvidia_smi_temperature_gpu 41", "node_textfile_scrape_error 0"]
    assert 0 <= found["age"] < 60
    monkeypatch.setattr(module.services, "scrape", lambda *_: {"status": 401, "text": "", "error": "HTTP Error 401"})
    assert module.look(str(record))["lines"] == ["nvidia_smi_temperature_gpu 40"]
    assert module.look(str(tmp_path / "none")) == {}
    record.write_text("[]")
    assert module.look(str(record)) == {}
