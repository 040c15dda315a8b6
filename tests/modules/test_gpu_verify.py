"""The role gpu_verify through Ansible itself: one round trip, verdicts, check mode, simulated hosts, refusals.

A stand-in nvidia-smi on PATH replays what a real one printed; nothing else is pretended.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.verify.verify_documents import captured, set_smi

ROOT = Path(__file__).resolve().parents[2]
LOCAL = f"ansible_connection=local ansible_python_interpreter={sys.executable} gpusetup_become=false"


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Run the playbook as somebody would who only uses Ansible; returns the exit code and each host's result."""
    show = tmp_path / "callback"
    show.mkdir()

    def run(*arguments, inventory=f"here {LOCAL}", playbook="verify"):
        (tmp_path / "hosts.ini").write_text(inventory + "\n", encoding="utf-8")
        events = tmp_path / "events.jsonl"
        events.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "gpusetup/callback_plugins"),
            "ANSIBLE_CALLBACKS_ENABLED": "gpusetup_events",
            "GPUSETUP_EVENTS": str(events),
            "PYTHONPATH": str(ROOT),
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        }
        finished = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.ini"), *arguments, str(ROOT / f"playbooks/{playbook}.yml")],
            capture_output=True, text=True, env=environment, timeout=180, check=False,
        )  # fmt: skip
        found = {}
        for line in events.read_text(encoding="utf-8").splitlines() if events.exists() else []:
            event = json.loads(line)
            if event["event"] in ("ok", "failed", "changed"):
                found[event["host"]] = event
        return finished.returncode, found, finished.stdout + finished.stderr

    return run


@pytest.fixture
def stand_in_smi(tmp_path, monkeypatch):
    """Put an nvidia-smi on PATH that replays a capture."""

    def install(document):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "smi.xml").write_text(document["quick"]["smi"]["stdout"], encoding="utf-8")
        (folder / "query.csv").write_text(document["quick"]["smi_query"]["stdout"], encoding="utf-8")
        program = folder / "nvidia-smi"
        program.write_text(
            f'#!/bin/sh\ncase "$1" in -q) cat {folder}/smi.xml;; --query-gpu*) cat {folder}/query.csv;; esac\n',
            encoding="utf-8",
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return install


def test_one_task_one_round_trip_no_change(play):
    code, hosts, output = play("-e", "gpu_verify_level=quick", inventory=f"one {LOCAL}\ntwo {LOCAL}")
    assert code == 0, output
    assert set(hosts) == {"one", "two"}
    for host in hosts.values():
        assert host["event"] == "ok"
        assert host["data"]["observations"]["schema"] == "gpusetup/observations/2"
    assert "changed=0" in output


def test_check_mode_looks_as_well(play):
    code, hosts, output = play("--check", "-e", "gpu_verify_level=quick")
    assert code == 0, output
    assert hosts["here"]["data"]["observations"]["level"] == "quick"


def test_a_failed_check_fails_the_task_and_names_itself(play, stand_in_smi):
    document = captured("h200-x1-quick")
    set_smi(document, 0, "ecc_errors/volatile/dram_uncorrectable", "2")
    stand_in_smi(document)
    code, hosts, output = play("-e", "gpu_verify_level=quick")
    assert code == 2, output
    assert hosts["here"]["event"] == "failed"
    assert "verification failed" in hosts["here"]["message"]
    verdicts = {result["id"]: result["verdict"] for result in hosts["here"]["data"]["results"]}
    assert (verdicts["gpu.ecc"], verdicts["gpu.memory-repair"]) == ("fail", "pass"), (
        "the stand-in's document was judged"
    )
    assert "gpu.ecc: GPU 0: 2 uncorrectable errors" in hosts["here"]["message"]


def test_the_caller_may_judge_instead(play, stand_in_smi):
    stand_in_smi(captured("h200-x1-quick"))
    code, hosts, output = play("-e", '{"gpu_verify_level": "quick", "gpu_verify_fail": false}')
    assert code == 0, output
    assert "results" not in hosts["here"]["data"]


def test_a_simulated_host_is_looked_at_and_nothing_is_run(play, tmp_path):
    device = tmp_path / "captured/sys/bus/pci/devices/0000:41:00.0"
    device.mkdir(parents=True)
    for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2330")):
        (device / name).write_text(text + "\n", encoding="utf-8")
    code, hosts, output = play("-e", f"gpusetup_simulated_root={tmp_path}/captured")
    assert code == 0, output
    document = hosts["here"]["data"]["observations"]
    assert document["simulated"] is True
    assert len(document["facts"]["gpus"]) == 1


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("gpu_verify_level=deep", "value of level must be one of"),
        ("gpusetup_simulated_root=/nowhere", "holds no captured machine"),
    ],
)
def test_bad_variables_are_refused(play, variable, words):
    code, _, output = play("-e", variable)
    assert code == 2
    assert words in " ".join(output.split()) or "gpu_verify_level" in output


def test_the_run_token_is_not_shown(play):
    code, hosts, output = play("-vvv", "-e", '{"gpu_verify_level": "quick", "gpu_verify_token": "very-secret-token"}')
    assert code == 0
    assert "very-secret-token" not in json.dumps(hosts)
    shown = [line for line in output.splitlines() if "very-secret-token" in line]
    assert shown == []


def test_role_arguments_are_documented_one_to_one():
    import yaml

    role = ROOT / "roles/gpu_verify"
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8"))
    options = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"][
        "options"
    ]
    assert set(defaults) == set(options)
    for name, value in defaults.items():
        assert options[name]["default"] == value, name
