"""GPUs reset after an error: what stands in the way, what is stopped for it, what is looked at and written down."""

import json

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import owner, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.systemd import Stopped
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import smi
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import FolderHost
from ansible_collections.gpusetup.stack.plugins.modules import gpu_recover

from tests.modules.gpu_host_stand_in import FIRST, SECOND, Host

WHO = {"controller": "here", "user": "me", "run": "run-1", "home": "home-1", "alive": ["run-1"], "turns": 1}


@pytest.fixture(name="host")
def made_host(tmp_path, monkeypatch):
    made = Host(tmp_path, monkeypatch)
    monkeypatch.setattr(gpu_recover, "_fabric", lambda _env: (False, False))
    (tmp_path / "figures.json").write_text(json.dumps({"0": {"gpu_recovery_action": "Reset"}, "1": {"gpu_recovery_action": "None"}}))  # fmt: skip
    return made


@pytest.fixture(name="call")
def made_call(host, run_module):
    def told(mode, *, check=False, fails=False, token="", **more):
        given = {"state_dir": str(host.root / "state"), "owner": token}
        failed, result = run_module(gpu_recover, check=check, host=given, mode=mode, controller=WHO, **more)
        assert failed == fails, result
        return dict(result)

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
    assert {name: entry[name] for name in ("action", "gpus", "why", "outcome", "who")} == {
        "action": "reset", "gpus": [FIRST], "why": ["the driver's recovery action is: Reset"], "outcome": "done", "who": "me",
    }  # fmt: skip
    assert entry["uptime"] > 0


def test_what_a_cut_reset_left_stopped_runs_after_the_next_one(host, call):
    host.unit("nvidia-persistenced.service")
    cut = Stopped(driver.FOR_RESET, process.environment(), Ledger(str(host.root / "state"))).__enter__()
    assert cut.record.unfinished() == ["restart of nvidia-persistenced.service"]
    call("reset", gpus=[FIRST])
    assert host.did()[-1] == "start nvidia-persistenced.service"
    assert Ledger(cut.record.folder).unfinished() == []


def test_a_service_that_does_not_start_again_is_told_and_stays_open(host, call):
    host.unit("nvidia-persistenced.service")
    (host.root / "refused").write_text("start nvidia-persistenced.service\n")
    told = call("reset", gpus=[FIRST], fails=True)
    assert "nvidia-persistenced.service does not start again" in told["msg"]
    assert [entry["outcome"] for entry in record(host)] == ["done"]
    assert Ledger(str(host.root / "state")).unfinished() == ["restart of nvidia-persistenced.service"]


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
    told = call("reset", gpus=[SECOND], fails=True)
    assert told["gpu_failure"]["reference"] == "GS-423"
    assert "python3 (4711)" in told["msg"]
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
    told = call("reset", gpus=gpus, fails=True)
    assert told["gpu_failure"]["reference"] == reference
    assert words in told["msg"]
    assert record(host) == []


def test_a_reset_that_did_not_help_is_told_and_not_called_done(host, call):
    host.state(stubborn=True)
    assert call("reset", gpus=[FIRST])["left"] == {FIRST: "Reset"}
    assert record(host)[0]["outcome"] == f"{FIRST} still asks for Reset"


def test_nobody_resets_under_somebody_else(host, call):
    folder = str(host.root / "state")
    owner.take(folder, dict(WHO, home="other", run="apply-9", user="she"), "x")
    told = call("reset", token="", gpus=[FIRST], fails=True)
    assert told["gpu_failure"]["reference"] == "GS-452"
    assert "she" in told["msg"]
    assert record(host) == []


def test_the_record_is_bounded_and_a_damaged_one_does_not_stop_anybody(host):
    folder = host.root / "state"
    folder.mkdir()
    (folder / "recoveries.json").write_text("[{")
    for number in range(gpu_recover._KEPT + 3):
        gpu_recover.record_recovery(str(folder), {"action": "reset", "gpus": [str(number)], "outcome": "done"})
    kept = record(host)
    assert (len(kept), kept[0]["gpus"]) == (gpu_recover._KEPT, ["3"])


def gpu(address, capability="9.0", links=0, instances=None):
    return {"address": address, "capability": capability, "links": links, "instances": instances or []}


@pytest.mark.parametrize(
    ("gpus", "chosen", "nvswitch", "manager", "words"),
    [
        ([gpu("a"), gpu("b")], ["a"], False, False, ""),
        ([gpu("a", links=18), gpu("b", links=18)], ["a"], False, False, ""),
        ([gpu("a", links=18), gpu("b", links=18)], ["a"], True, True, ""),
        ([gpu("a", links=18), gpu("b", links=18)], ["a"], True, False, "fabric manager does not run"),
        ([gpu("a", links=18), gpu("b", links=18)], ["a", "b"], True, False, ""),
        ([gpu("a", "7.0", 6), gpu("b", "7.0", 6)], ["a"], False, False, "a is older than Ampere"),
        ([gpu("a", "7.0", 6), gpu("b", "7.0", 6)], ["a", "b"], False, False, ""),
        ([gpu("a", None, 6), gpu("b", None, 6)], ["a"], False, False, "does not report its generation"),
        ([gpu("a", "7.0", 0), gpu("b", "7.0", 6), gpu("c", "7.0", 6)], ["a"], False, False, ""),
        ([gpu("a", instances=[{"id": 1}])], ["a"], False, False, "MIG instances"),
        ([gpu("a"), gpu("b", instances=[{"id": 1}])], ["a"], False, False, ""),
    ],
)  # fmt: skip
def test_the_rules_of_nvidia_smi_s_manual(gpus, chosen, nvswitch, manager, words):
    told = gpu_recover.refusal(gpus, chosen, nvswitch, manager)
    assert (told is None) == (words == "")
    assert told is None or words in told[0]


@pytest.mark.parametrize(
    ("recovery_answer", "rows_answer", "told"),
    [
        ({"rc": 0, "out": "00000000:00:06.0, GPU Reset\n"}, {"rc": 0, "out": "00000000:00:06.0, Yes, No\n"},
         {"action": "GPU Reset", "pending": True, "failed": False}),
        ({"rc": 2, "out": 'Field "gpu_recovery_action" is not a valid field to query.\n'}, {"rc": 0, "out": "00000000:00:06.0, 0, 1\n"},
         {"action": None, "pending": False, "failed": True}),
        ({"rc": 0, "out": "00000000:00:06.0, [N/A]\n"}, {"rc": 0, "out": "00000000:00:06.0, [N/A], [N/A]\n"},
         {"action": None, "pending": None, "failed": None}),
    ],
)  # fmt: skip
def test_what_the_driver_asks_for_is_read(tmp_path, recovery_answer, rows_answer, told):
    host = FolderHost(str(tmp_path))
    host.observations = {
        "command:nvidia-smi-recovery": dict(recovery_answer, err=""),
        "command:nvidia-smi-rows": dict(rows_answer, err=""),
    }
    assert smi.recovery_asked(host, "/usr/bin/nvidia-smi") == {"0000:00:06.0": told}


def test_only_resets_of_this_boot_that_were_done_settle_anything(tmp_path):
    for path, text in {
        "proc/sys/kernel/random/boot_id": "now\n",
        "var/lib/gpusetup/recoveries.json": json.dumps([
            {"boot": "before", "action": "reset", "outcome": "done", "gpus": ["a"], "uptime": 9.0, "time": 1.0},
            {"boot": "now", "action": "reset", "outcome": "b still asks for Reset", "gpus": ["b"], "uptime": 9.0, "time": 1.0},
            {"boot": "now", "action": "reset", "outcome": "done", "gpus": ["c"], "uptime": 5.0, "time": 2.0},
            {"boot": "now", "action": "reset", "outcome": "done", "gpus": ["c"], "uptime": 9.0, "time": 3.0},
            "torn",
        ]),
    }.items():  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert smi.resets(FolderHost(str(tmp_path))) == {"c": {"uptime": 9.0, "time": 3.0}}
