"""The role gpu_verify through Ansible itself: one round trip, verdicts, check mode, simulated hosts.

A stand-in nvidia-smi on PATH replays what a real one printed; nothing else is pretended.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.modules.stand_ins import programs, write
from tests.unit.verify.verify_documents import captured, set_smi

ROOT = Path(__file__).resolve().parents[2]
LOCAL = f"ansible_connection=local ansible_python_interpreter={sys.executable} gpusetup_become=false"


@pytest.fixture
def play(tmp_path):
    """Run the playbook as somebody would who only uses Ansible; return each host's result and all that was said."""

    def run(*arguments, inventory=f"here {LOCAL}", code=0):
        events = tmp_path / "events.jsonl"
        write(tmp_path, {"hosts.ini": inventory + "\n", "events.jsonl": ""})
        environment = {
            **os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
            "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "gpusetup/callback_plugins"), "PYTHONPATH": str(ROOT),
            "ANSIBLE_CALLBACKS_ENABLED": "gpusetup_events", "GPUSETUP_EVENTS": str(events),
        }  # fmt: skip
        argv = [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.ini"), *arguments]
        argv.append(str(ROOT / "playbooks/verify.yml"))
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=180, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        rows = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
        found = {row["host"]: row for row in rows if row["event"] in ("ok", "failed", "changed")}
        return found, done.stdout + done.stderr

    return run


@pytest.fixture
def stand_in_smi(tmp_path, monkeypatch):
    """Put an nvidia-smi on PATH that replays a capture."""

    def install(document):
        quick, cat = document["quick"], f"cat {tmp_path}/bin"
        text = f'#!/bin/sh\ncase "$1" in -q) {cat}/smi.xml;; --query-gpu*) {cat}/query.csv;; esac\n'
        write(tmp_path / "bin", {"smi.xml": quick["smi"]["stdout"], "query.csv": quick["smi_query"]["stdout"]})
        programs(tmp_path, monkeypatch, {"nvidia-smi": text})

    return install


@pytest.mark.parametrize("check", [[], ["--check"]], ids=["normal", "check"])
def test_one_task_one_round_trip_no_change(play, check):
    hosts, output = play(*check, "-e", "gpu_verify_level=quick", inventory=f"one {LOCAL}\ntwo {LOCAL}")
    assert set(hosts) == {"one", "two"}
    for host in hosts.values():
        told = host["data"]["observations"]
        assert (host["event"], told["schema"], told["level"]) == ("ok", "gpusetup/observations/2", "quick")
    assert "changed=0" in output


def test_a_failed_check_fails_the_task_and_names_itself(play, stand_in_smi):
    document = captured("h200-x1-quick")
    set_smi(document, 0, "ecc_errors/volatile/dram_uncorrectable", "2")
    stand_in_smi(document)
    here = play("-e", "gpu_verify_level=quick", code=2)[0]["here"]
    assert here["event"] == "failed"
    assert "verification failed" in here["message"]
    assert "gpu.ecc: GPU 0: 2 uncorrectable errors" in here["message"]
    verdicts = {result["id"]: result["verdict"] for result in here["data"]["results"]}
    assert (verdicts["gpu.ecc"], verdicts["gpu.memory-repair"]) == ("fail", "pass"), "the stand-in's were judged"


def test_the_caller_may_judge_instead_and_the_run_token_is_not_shown(play, stand_in_smi):
    stand_in_smi(captured("h200-x1-quick"))
    given = {"gpu_verify_level": "quick", "gpu_verify_fail": False, "gpu_verify_token": "very-secret-token"}
    hosts, output = play("-vvv", "-e", json.dumps(given))
    assert "results" not in hosts["here"]["data"]
    assert "very-secret-token" not in json.dumps(hosts) + output


def test_a_simulated_host_is_looked_at_and_nothing_is_run(play, tmp_path):
    rows = {"vendor": "0x10de\n", "class": "0x030200\n", "device": "0x2330\n"}
    write(tmp_path / "captured/sys/bus/pci/devices/0000:41:00.0", rows)
    document = play("-e", f"gpusetup_simulated_root={tmp_path}/captured")[0]["here"]["data"]["observations"]
    assert (document["simulated"], len(document["facts"]["gpus"])) == (True, 1)
