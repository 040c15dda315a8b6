"""One owner per host: the second one is told who it is, and whoever died does not stand in the way."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import lifecycle, owner
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import drift
from ansible_collections.gpusetup.stack.plugins.modules import gpu_reboot_need, gpu_service, gpu_state

from tests.modules.stand_ins import refused, replace

ANNA = {"controller": "desk", "user": "anna", "run": "run-1", "home": "aa", "alive": ["run-1"]}
BERT = {"controller": "lab", "user": "bert", "run": "run-9", "home": "bb", "alive": ["run-9"]}


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """The host's uptime and boot, and sleeping as what lets time pass."""
    uptime, boot = tmp_path / "uptime", tmp_path / "boot_id"

    class Clock:
        now = 1000.0

        def sleep(self, seconds):
            self.now += seconds
            uptime.write_text(f"{self.now} 0\n")

    clock = Clock()
    boot.write_text("first\n")
    clock.sleep(0.0)
    replace(monkeypatch, owner, _UPTIME=str(uptime), _BOOT_ID=str(boot))
    monkeypatch.setattr(owner.time, "sleep", clock.sleep)
    return clock


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "state")


def test_of_the_same_controller_a_run_that_lives_is_not_waited_for_and_one_that_is_over_gives_way(clock, folder):
    first = owner.take(folder, ANNA, "580")
    with refused("another gpusetup"):
        owner.take(folder, {**ANNA, "run": "run-2", "alive": ["run-1", "run-2"]}, "580")
    second = owner.take(folder, {**ANNA, "run": "run-2", "alive": ["run-2"]}, "590")
    assert (second != first, clock.now) == (True, 1000.0)


def test_whoever_was_given_up_for_dead_cannot_go_on_beside_its_successor(clock, folder):
    owner.hold(folder, "")
    assert not Path(folder).exists(), "to look for an owner leaves nothing behind"
    late = owner.take(folder, ANNA, "580")
    token = owner.take(folder, BERT, "590")
    assert clock.now > 1000.0
    with refused("another gpusetup"):
        owner.hold(folder, late)
    owner.release(folder, late)
    clock.sleep(60.0)
    owner.hold(folder, token)
    assert owner._read(folder)["seen"] == clock.now, "a sign of life"
    owner.release(folder, token)
    owner.hold(folder, "")
    with refused("another gpusetup took this host over"):
        owner.hold(folder, late)
    owner.release(folder, owner.take(folder, ANNA, "580"))
    with refused():
        owner.hold(folder, late)


@pytest.mark.parametrize(("who", "stays"), [(ANNA, True), ({}, False)], ids=["gpusetup goes on", "the roles alone"])
def test_a_step_that_fails_lets_go_when_nothing_follows(clock, folder, run_module, monkeypatch, who, stays):
    monkeypatch.setattr(gpu_service.services, "bring_up", Mock(side_effect=HostFailure("GS-487", "no such unit")))
    token = owner.take(folder, who, "580")
    run_module(gpu_service, names=["x"], host={"state_dir": folder, "owner": token}, fails="GS-487")
    assert (owner._read(folder) is not None) == stays
    if not stays:
        owner.take(folder, BERT, "590")
        assert clock.now == 1000.0, "nobody waits"


def test_a_record_that_changed_meanwhile_is_not_overwritten(folder):
    mine, theirs = Ledger(folder), Ledger(folder)
    theirs.state["holds"] = ["theirs"]
    theirs.save()
    with refused("GS-432: something else is changing this host: its record has just changed"):
        mine.save()
    assert Ledger(folder).state["holds"] == ["theirs"]


def test_a_removal_knows_what_the_owner_before_it_did_last(folder, monkeypatch):
    def wait_for_it(*_words):
        Ledger(folder).record_packages({"installed": {"driver": "1"}, "moved": {}, "removed": {}})
        return "token"

    Ledger(folder).tell(free=["x"])
    monkeypatch.setattr(owner, "take", wait_for_it)
    manager = SimpleNamespace(installed=lambda: {"driver": "1"})
    monkeypatch.setattr(lifecycle.Lifecycle, "_manager", lambda _self: manager)
    state = lifecycle.Lifecycle({"state_dir": folder, "simulated_root": "", "wanted": {}})
    assert state.removal()["remove"] == ["driver"]
    assert [item.id for item in drift.differences({}, Ledger(folder).state)] == ["open-removal:of everything"]


@pytest.mark.parametrize(("mode", "says"), [("begin", "disk is full"), ("removal", "rebuild the initramfs")])
def test_a_host_that_cannot_be_written_is_not_even_taken(folder, run_module, monkeypatch, mode, says):
    (ledger := Ledger(folder)).state["files"]["/etc/modprobe.d/x.conf"] = {}
    ledger.save()
    monkeypatch.setattr(lifecycle.space.os, "statvfs", lambda _path: Mock(f_flag=0, f_frsize=1, f_bavail=0, f_files=0))
    monkeypatch.setattr(lifecycle.boot_image, "path_of", lambda _kernel: __file__)
    monkeypatch.setattr(owner, "take", Mock(side_effect=AssertionError))
    told = run_module(gpu_state, mode=mode, manager="apt", owner=ANNA, host={"state_dir": folder}, fails="GS-472")
    assert says in told["msg"]


def test_whoever_waits_for_programs_to_end_keeps_the_host(clock, folder, run_module, monkeypatch):
    facts = {"simulated": False, "kernel": {"running": "6.1", "next": "6.1", "installed": []}, "processes": []}
    monkeypatch.setattr(gpu_reboot_need.Machine, "facts", lambda _self: facts)
    token = owner.take(folder, ANNA, "580")
    ours = {"state_dir": folder, "owner": token}
    for _poll in range(20):
        clock.sleep(15.0)
        run_module(gpu_reboot_need, host=ours)
        assert owner.present(folder) is not None
    clock.sleep(owner.PATIENCE + 1)
    owner.take(folder, BERT, "590")
    run_module(gpu_reboot_need, host=ours, fails="GS-452")  # nobody reboots under another one
    run_module(gpu_reboot_need, host={"state_dir": folder})  # to look is free
