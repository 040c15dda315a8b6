"""GPUs reset after an error: what stands in the way, what is stopped for it, what is looked at and written down."""

import json
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import gpu_users, owner, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.systemd import Stopped
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import smi
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import FolderHost
from ansible_collections.gpusetup.stack.plugins.modules import gpu_recover

from tests.modules.gpu_host_stand_in import FIRST, SECOND, Host
from tests.modules.stand_ins import write
from tests.stored import stored_rows

WHO = {"controller": "here", "user": "me", "run": "run-1", "home": "home-1", "alive": ["run-1"], "turns": 1}


@pytest.fixture
def host(tmp_path, monkeypatch):
    made = Host(tmp_path, monkeypatch)
    monkeypatch.setattr(gpu_recover, "_fabric", lambda _env: (False, False))
    figures = {str(number): {"gpu_recovery_action": action} for number, action in enumerate(("Reset", "None"))}
    (tmp_path / "figures.json").write_text(json.dumps(figures))
    return made


@pytest.fixture
def call(host, run_module):
    def told(mode, token="", **more):
        return run_module(gpu_recover, host={**host.given, "owner": token}, mode=mode, controller=WHO, **more)

    return told


def record(host):
    path = host.root / "state/recoveries.json"
    return json.loads(path.read_text()) if path.exists() else []


def test_one_gpu_is_reset_with_what_watches_it_stopped_and_the_record_says_so(host, call):
    host.unit("nvidia-persistenced.service")
    host.unit("gpusetup-gpu-textfile.timer")
    token = call("begin")["owner"]
    done = call("reset", token=token, gpus=[FIRST], why=["the driver's recovery action is: Reset"])
    assert (done["changed"], done["left"]) == (True, {})
    assert host.did() == [
        "stop gpusetup-gpu-textfile.timer", "stop nvidia-persistenced.service",
        "start nvidia-persistenced.service", "start gpusetup-gpu-textfile.timer",
    ]  # fmt: skip
    assert owner.present(str(host.root / "state")) is not None
    call("note", token=token)
    assert owner.present(str(host.root / "state")) is None
    (entry,) = record(host)
    wanted = {"action": "reset", "gpus": [FIRST], "why": ["the driver's recovery action is: Reset"], "outcome": "done", "who": "me"}  # fmt: skip
    assert {name: entry[name] for name in wanted} == wanted
    assert entry["uptime"] > 0


def test_what_a_cut_reset_left_stopped_runs_after_the_next_one(host, call):
    host.unit("nvidia-persistenced.service")
    cut = Stopped(driver.FOR_RESET, process.environment(), host.ledger).__enter__()
    assert list(cut.record.state["open"]) == ["restart of:nvidia-persistenced.service"]
    call("reset", gpus=[FIRST])
    assert host.did()[-1] == "start nvidia-persistenced.service"
    assert host.ledger.state["open"] == {}


def test_a_check_tells_and_touches_nothing(host, call):
    before = (host.root / "figures.json").read_text()
    assert call("begin", check=True)["owner"] == ""
    assert call("reset", check=True, gpus=[FIRST])["changed"]
    call("note", check=True, action="reboot")
    assert (host.did(), record(host)) == ([], [])
    assert (host.root / "figures.json").read_text() == before
    assert not (host.root / "state").exists()


def test_a_gpu_that_a_program_uses_is_refused_and_the_program_is_named(host, call):
    host.state(apps=[{"gpu": 1, "pid": 4711, "name": "/usr/bin/python3"}])
    call("reset", gpus=[FIRST])
    call("reset", gpus=[SECOND], fails=("GS-423", "python3 (4711)"))
    assert [entry["gpus"] for entry in record(host)] == [[FIRST]]


@pytest.mark.parametrize(
    ("changes", "gpus", "reference", "words"),
    [
        ({"no_reset": True}, [FIRST], "GS-424", "is not supported"),
        ({}, ["0000:99:00.0"], "GS-421", "does not answer"),
        ({"mode": {"0": True}, "instances": {"0": [{"id": 1, "profile": "1g.18gb", "profile_id": 19, "start": 0, "size": 1, "compute": []}]}},
         [FIRST], "GS-422", "MIG instances"),
    ],
)  # fmt: skip
def test_what_cannot_be_reset_says_why(host, call, changes, gpus, reference, words):
    host.state(**changes)
    call("reset", gpus=gpus, fails=(reference, words))
    assert [entry["outcome"] for entry in record(host)] == ["failed"] * (reference == "GS-424")


def test_a_reset_is_on_record_before_it_happens(host, call, monkeypatch):
    monkeypatch.setattr(Stopped, "__enter__", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        call("reset", gpus=[FIRST])
    reboot = {"action": "reboot", "why": ["Reset failed"]}
    token = call("begin", **reboot)["owner"]
    assert [(entry["action"], entry["outcome"]) for entry in record(host)] == [
        ("reset", "interrupted"), ("reboot", "interrupted")
    ]  # fmt: skip
    call("note", token=token, outcome="done", **reboot)
    assert [entry["outcome"] for entry in record(host)] == ["interrupted", "done"]


def test_nobody_resets_under_somebody_else(host, call):
    owner.take(host.given["state_dir"], dict(WHO, home="other", run="apply-9", user="she"), "x")
    call("reset", gpus=[FIRST], fails=("GS-452", "she"))
    assert record(host) == []


def test_a_call_of_nvidia_smi_that_ends_is_not_in_the_way(host, call, monkeypatch):
    monkeypatch.setattr(gpu_users, "who", Mock(side_effect=[[(7, "nvidia-smi")], [(7, "nvidia-smi")], []]))
    monkeypatch.setattr(gpu_users.time, "sleep", Mock())
    assert call("reset", gpus=[FIRST])["left"] == {}


def gpu(address, capability="9.0", links=0, instances=None):
    return {"address": address, "capability": capability, "links": links, "instances": instances or []}


@pytest.mark.parametrize(("gpus", "chosen", "nvswitch", "manager", "words"), stored_rows("recover-rules.json"))
def test_the_rules_of_nvidia_smi_s_manual(gpus, chosen, nvswitch, manager, words):
    told = gpu_recover.refusal([gpu(*row) for row in gpus], chosen, nvswitch, manager)
    assert (told is None) == (words == "")
    assert told is None or words in told[0]


def test_a_driver_that_names_no_action_asks_for_none(tmp_path):
    host = FolderHost(str(tmp_path))
    host.observations["command:nvidia-smi-recovery"] = {"rc": 0, "out": "00000000:00:06.0, [N/A]\n", "err": ""}
    nothing = {"action": None, "pending": None, "failed": None}
    assert smi.recovery_asked(host, "/usr/bin/nvidia-smi") == {"0000:00:06.0": nothing}


def test_only_resets_of_this_boot_that_were_done_settle_anything(tmp_path):
    rows = [
        {"boot": "before", "gpus": ["a"], "uptime": 9.0, "time": 1.0},
        {"boot": "now", "outcome": "b still asks for Reset", "gpus": ["b"], "uptime": 9.0, "time": 1.0},
        {"boot": "now", "gpus": ["c"], "uptime": 5.0, "time": 2.0},
        {"boot": "now", "gpus": ["c"], "uptime": 9.0, "time": 3.0},
    ]
    kept = json.dumps([*({"action": "reset", "outcome": "done", **row} for row in rows), "torn"])
    write(tmp_path, {"proc/sys/kernel/random/boot_id": "now\n", "var/lib/gpusetup/recoveries.json": kept})
    assert smi.resets(FolderHost(str(tmp_path))) == {"c": {"uptime": 9.0, "time": 3.0}}
