"""Whether a reboot is needed, read from what is loaded and what is on disk; after one, that is a failure."""

import os
import re
import shlex
import subprocess
import time
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.modules import gpu_reboot_need, gpu_reboot_stage

from tests.modules.stand_ins import replace

WANTED = {"host": {"state_dir": "/var/lib/gpusetup"}, "version": "580.95.05", "flavour": "open", "kernels": ["6.1"]}
RUNS = {"version": "580.95.05", "flavour": "open"}
FACTS = {
    "simulated": False, "nouveau": {"loaded": False}, "secure_boot": False, "processes": [], "module_users": {},
    "kernel": {"running": "6.1", "next": "6.1", "installed": [{"release": "6.1", "nvidia": None}]},
    "firmware": {"signing_keys": [], "password": None},
}  # fmt: skip


@pytest.fixture
def ask(run_module, monkeypatch):
    """Return what the module answers of a host with this driver loaded, and other facts."""

    def call(loaded, host=None, **more):
        facts = {**FACTS, "driver": {"loaded": loaded}, **(host or {})}
        monkeypatch.setattr(gpu_reboot_need.Machine, "facts", lambda _self: facts)
        return run_module(gpu_reboot_need, **WANTED, **more)

    return call


def test_a_driver_other_than_the_wanted_one_needs_a_reboot_and_after_it_is_a_failure(ask):
    result = ask(RUNS, after_reboot=True)
    assert (result["needed"], result["reasons"]) == (False, [])
    assert ask({**RUNS, "version": "570.1"})["needed"] is True
    assert ask(None)["reasons"] == ["nvidia 580.95.05 is wanted, none is loaded"]
    ask(None, after_reboot=True, fails=("GS-496", "note: nvidia 580.95.05 is wanted, none is loaded", "doctor"))
    assert ask(None, after_reboot=True, check=True)["needed"] is True, "a rehearsal did not reboot"


@pytest.mark.parametrize(
    ("states", "patience", "runs"),
    [
        (["starting"] * 100 + ["running"] * 5, 300, True),  # DKMS builds for some minutes
        (["running"] * 5, 300, True),
        (["running"] * 50, 300, False),
        (["starting"] * 500, 300, False),
    ],
)
def test_a_driver_that_comes_some_seconds_after_the_boot_is_waited_for(run_module, monkeypatch, states, patience, runs):
    left, spent = list(states), []
    facts = lambda _self: {**FACTS, "driver": {"loaded": None if left else RUNS}}  # noqa: E731
    replace(monkeypatch, gpu_reboot_need.Machine, facts=facts)
    replace(monkeypatch, gpu_reboot_need.process, output=lambda *_words: (1, left.pop(0) + "\n", ""))
    replace(monkeypatch, gpu_reboot_need.time, sleep=spent.append, monotonic=lambda: sum(spent))
    run_module(gpu_reboot_need, **WANTED, after_reboot=True, wait=patience, fails="" if runs else "GS-496")
    assert sum(spent) <= patience + 2


SIGNED = {"path": "/lib/modules/6.1/extra/nvidia.ko", "signed": True, "signer": "DKMS", "key": "1a"}
OWN = {"serial": "1a", "issuer": "DKMS", "key": "2b", "enrolled": False}


def with_secure_boot(module, *keys):
    kernel = {"running": "6.1", "next": "6.1", "installed": [{"release": "6.1", "nvidia": module}]}
    return {"secure_boot": True, "kernel": kernel, "firmware": {"signing_keys": list(keys), "password": None}}


def test_a_reboot_that_could_not_help_is_not_made(ask):
    unsigned = with_secure_boot({**SIGNED, "signed": False, "signer": None, "key": None}, OWN)
    ask(None, unsigned, fails=("GS-495", "note: ", "not signed"))


@pytest.mark.parametrize(("code", "full", "fails"), [(0, False, ""), (1, False, "GS-491"), (0, True, "GS-472")])
def test_only_a_scheduled_reboot_leaves_its_mark(run_module, tmp_path, monkeypatch, code, full, fails):
    mark, seen = tmp_path / "resume", []
    mark.touch()  # of a reboot that was cancelled
    monkeypatch.setattr(gpu_reboot_stage, "stage", lambda *_words: None)
    answer = lambda argv, *_: seen.append((argv[1], mark.exists())) or (code, "", "no")  # noqa: E731
    monkeypatch.setattr(gpu_reboot_stage.process, "output", answer)
    if full:
        monkeypatch.setattr(gpu_reboot_stage.files, "write_atomically", Mock(side_effect=OSError(28, "No space left")))
    given = {"host": {"state_dir": str(tmp_path)}, "resume": ["gpusetup", "apply"]}
    busy = [{"pid": 7, "command": "dpkg"}, None]  # it ends while the reboot waits for it
    replace(
        monkeypatch, gpu_reboot_stage.package_manager, lock_holder=lambda: busy.pop(0), time=Mock(monotonic=time.time)
    )
    run_module(gpu_reboot_stage, **given, fails=fails)
    assert not busy
    assert (seen, mark.exists()) == ([("-r", False), ("-c", False)][: 1 + full], not fails)
    assert fails or abs(mark.stat().st_mtime - time.time() - 60) < 50, "the time of the reboot"


def test_the_unit_that_goes_on_goes_with_removal_and_so_does_what_starts_it(tmp_path, monkeypatch):
    unit, starts = tmp_path / "system/gpusetup-resume.service", tmp_path / "system/multi-user.target.wants/it.service"
    replace(monkeypatch, gpu_reboot_stage, UNIT=str(unit), STARTS=str(starts))
    ledger = Ledger(str(tmp_path / "state"))
    for _time in range(2):
        gpu_reboot_stage.stage(ledger, str(tmp_path / "state/resume"), ["touch", str(tmp_path / "continued")])
        assert starts.resolve() == unit
    mark, (line,) = tmp_path / "state/resume", re.findall("ExecStart=(.*)", unit.read_text())
    for minutes in (-61, -59, 3):  # of a reboot that was cancelled; of this one; somebody was earlier
        mark.touch()
        os.utime(mark, (time.time() + 60 * minutes,) * 2)
        subprocess.run(shlex.split(line.replace("$$", "$")), check=True)
        assert (mark.exists(), (tmp_path / "continued").exists()) == (False, minutes > -60)
    assert [ledger.restore(str(unit)), ledger.link(str(starts), None)] == [True, True]
    assert not unit.parent.exists()
    assert (ledger.state["folders"], ledger.state["links"]) == ({}, {})
