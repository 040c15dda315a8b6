"""One owner per host: the second one is told who it is, and whoever died does not stand in the way."""

import multiprocessing
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import DEFAULT, Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, jobs, lifecycle, owner
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import drift
from ansible_collections.gpusetup.stack.plugins.modules import gpu_reboot_need, gpu_service, gpu_state

from tests.lab.process import until
from tests.modules.stand_ins import refused, replace

ANNA = {"controller": "desk", "user": "anna", "run": "run-1", "home": "aa", "alive": ["run-1"]}
BERT = {"controller": "lab", "user": "bert", "run": "run-9", "home": "bb", "alive": ["run-9"]}


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """The host's uptime and boot, and sleeping as what lets time pass."""
    uptime, boot = tmp_path / "uptime", tmp_path / "boot_id"

    class Clock:
        now = 1000.0
        woken = None

        def sleep(self, seconds):
            self.now += seconds
            uptime.write_text(f"{self.now} 0\n")
            if self.woken is not None:
                self.woken()

        def boots(self):
            boot.write_text("second\n")
            self.now = 0.0
            self.sleep(5.0)

    clock = Clock()
    boot.write_text("first\n")
    clock.sleep(0.0)
    replace(monkeypatch, owner, _UPTIME=str(uptime), _BOOT_ID=str(boot))
    monkeypatch.setattr(owner.time, "sleep", clock.sleep)
    return clock


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "state")


def test_who_comes_second_is_told_who_is_there_and_since_when(clock, folder):
    token = owner.take(folder, ANNA, "580")
    clock.woken = lambda: owner.hold(folder, token)
    with refused("GS-452: another gpusetup is changing this host", "at: anna on desk, since 2", "run run-1\n"):
        owner.take(folder, BERT, "590")


def test_of_the_same_controller_a_run_that_lives_is_not_waited_for_and_one_that_is_over_gives_way(clock, folder):
    first = owner.take(folder, ANNA, "580")
    with refused("another gpusetup"):
        owner.take(folder, {**ANNA, "run": "run-2", "alive": ["run-1", "run-2"]}, "580")
    second = owner.take(folder, {**ANNA, "run": "run-2", "alive": ["run-2"]}, "590")
    assert (second != first, clock.now) == (True, 1000.0)


@pytest.mark.parametrize("who", [BERT, {}])
def test_an_owner_that_died_gives_way_to_others_after_a_while(clock, folder, who):
    owner.take(folder, ANNA, "580")
    owner.take(folder, who, "590")
    assert owner.PATIENCE < clock.now - 1000.0 <= owner.PATIENCE + 2


def test_an_owner_with_many_hosts_may_be_silent_for_longer_and_nobody_waits_that_long(clock, folder):
    owner.take(folder, {**ANNA, "turns": 200}, "580")
    with refused("another gpusetup", "do: ", "free 2110 s after"):
        owner.take(folder, BERT, "590")
    assert clock.now - 1000.0 <= owner.PATIENCE + 3
    clock.sleep(2000.0)
    owner.take(folder, BERT, "590")


def test_an_owner_whose_host_reboots_has_that_time_again(clock, folder):
    token = owner.take(folder, ANNA, "580")
    clock.boots()
    owner.hold(folder, token)
    with refused():
        owner.hold(folder, "")
    assert clock.now == 5.0


def test_whoever_was_given_up_for_dead_cannot_go_on_beside_its_successor(clock, folder):
    owner.hold(folder, "")
    assert not Path(folder).exists(), "to look for an owner leaves nothing behind"
    late = owner.take(folder, ANNA, "580")
    token = owner.take(folder, BERT, "590")
    assert clock.now > 1000.0
    with refused("another gpusetup"):
        owner.hold(folder, late)
    owner.release(folder, late)
    owner.hold(folder, token)
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


def start(folder, number, gate, answers):
    gate.wait()
    try:
        over = lambda _job: until(Path(folder, "over").exists, "all have been answered", 60)  # noqa: E731
        answers.put(jobs.Job(folder, "packages", {"number": number}).start_or_join(over, 0)["state"])
    except HostFailure as failure:
        answers.put(failure.fields["reference"])


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


def test_of_jobs_that_come_at_once_one_starts(folder):
    """Each is another request, in a process of its own, as from several controllers."""
    context = multiprocessing.get_context("fork")
    gate, answers = context.Barrier(4), context.Queue()
    asking = [context.Process(target=start, args=(folder, number, gate, answers)) for number in range(4)]
    for process in asking:
        process.start()
    told = sorted(answers.get(timeout=60) for _process in asking)
    Path(folder, "over").touch()
    for process in asking:
        process.join()
    assert told == ["GS-452", "GS-452", "GS-452", "running"]


@pytest.mark.parametrize(("mode", "step"), [("begin", "_keep_baseline"), ("removal", "_count_packages")])
def test_a_beginning_that_fails_lets_the_host_go(clock, folder, run_module, monkeypatch, mode, step):
    Ledger(folder).tell(apply={"id": "first", "finished": "now"})
    monkeypatch.setattr(lifecycle.Lifecycle, "_manager", Mock())
    monkeypatch.setattr(lifecycle.Lifecycle, step, Mock(side_effect=OSError(28, "No space left on device")))
    run_module(
        gpu_state, mode=mode, manager="apt", wanted={"a": 1}, owner=ANNA, host={"state_dir": folder}, fails="GS-472"
    )
    assert owner.present(folder) is None


@pytest.mark.parametrize(("mode", "says"), [("begin", "disk is full"), ("removal", "rebuild the initramfs")])
def test_a_host_that_cannot_be_written_is_not_even_taken(folder, run_module, monkeypatch, mode, says):
    (ledger := Ledger(folder)).state["files"]["/etc/modprobe.d/x.conf"] = {}
    ledger.save()
    monkeypatch.setattr(lifecycle.space.os, "statvfs", lambda _path: Mock(f_flag=0, f_frsize=1, f_bavail=0, f_files=0))
    monkeypatch.setattr(lifecycle.boot_image, "path_of", lambda _kernel: __file__)
    monkeypatch.setattr(owner, "take", Mock(side_effect=AssertionError))
    told = run_module(gpu_state, mode=mode, manager="apt", owner=ANNA, host={"state_dir": folder}, fails="GS-472")
    assert says in told["msg"]


def test_a_step_that_lasts_shows_life_all_the_while(clock, folder, run_module, monkeypatch):
    seen = []

    def lasts(*_words):
        for _minute in range(4):
            clock.now += 60.0
            Path(owner._UPTIME).write_text(f"{clock.now} 0\n")
            for _look in range(1200):
                if (owner._read(folder) or {})["seen"] == clock.now:
                    break
                threading.Event().wait(0.1)
            seen.append((owner._read(folder) or {})["seen"])
        return False

    monkeypatch.setattr(owner, "_SIGN_OF_LIFE", 0.05)
    monkeypatch.setattr(gpu_service.services, "bring_up", lasts)
    token = owner.take(folder, ANNA, "580")
    run_module(gpu_service, names=["x"], host={"state_dir": folder, "owner": token})
    assert seen == [1060.0, 1120.0, 1180.0, 1240.0]


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


def test_a_disk_that_was_full_for_a_moment_ends_no_signs_of_life(clock, folder, monkeypatch):
    token, answers = owner.take(folder, ANNA, "580"), [OSError(28, "No space left on device"), *[DEFAULT] * 9999]
    monkeypatch.setattr(owner, "hold", Mock(wraps=owner.hold, side_effect=answers))
    monkeypatch.setattr(owner, "_SIGN_OF_LIFE", 0.01)
    clock.sleep(60.0)
    over = owner.show_life(folder, token)
    assert any(threading.Event().wait(0.05) or owner._read(folder)["seen"] == clock.now for _look in range(1200))
    over.set()


def test_whoever_waited_for_a_lock_whose_file_a_removal_deleted_locks_the_new_file(tmp_path, monkeypatch):
    path, real, removal = tmp_path / "lock", files.fcntl.flock, iter([(tmp_path / "lock").unlink])
    monkeypatch.setattr(files.fcntl, "flock", lambda *lock: (real(*lock), next(removal, int)()))
    with files.locked(str(path)):
        assert path.exists()
