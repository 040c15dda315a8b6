"""Whether a reboot is needed, read from what is loaded and what is on disk; after one, that is a failure."""

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.modules import gpu_reboot_need, gpu_reboot_stage

WANTED = {"host": {"state_dir": "/var/lib/gpusetup"}, "version": "580.95.05", "flavour": "open", "kernels": ["6.1"]}


FACTS: dict[str, Any] = {
    "simulated": False,
    "kernel": {"running": "6.1", "next": "6.1", "installed": [{"release": "6.1", "nvidia": None}]},
    "nouveau": {"loaded": False},
    "secure_boot": False,
    "firmware": {"signing_keys": [], "password": None},
    "processes": [],
    "module_users": {},
}


@pytest.fixture
def ask(run_module, monkeypatch):
    def call(loaded, host=None, **more):
        facts = {**FACTS, "driver": {"loaded": loaded}, **(host or {})}
        monkeypatch.setattr(gpu_reboot_need.Machine, "facts", lambda _self: facts)
        failed: bool
        result: dict[str, Any]
        failed, result = run_module(gpu_reboot_need, **WANTED, **more)
        return failed, result

    return call


def test_the_wanted_driver_runs(ask):
    failed, result = ask({"version": "580.95.05", "flavour": "open"}, after_reboot=True)
    assert (failed, result["needed"], result["reasons"]) == (False, False, [])


def test_another_one_runs_or_none(ask):
    failed, result = ask({"version": "570.1", "flavour": "open"})
    assert (failed, result["needed"]) == (False, True)
    failed, result = ask(None)
    assert (failed, result["reasons"]) == (False, ["nvidia 580.95.05 is wanted, none is loaded"])


def test_after_the_reboot_that_is_a_failure_with_its_reason(ask):
    failed, result = ask(None, after_reboot=True)
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-496"
    assert "none is loaded" in result["gpu_failure"]["note"]
    assert "doctor" in result["gpu_failure"]["hint"]
    failed, result = ask(None, after_reboot=True, check=True)
    assert (failed, result["needed"]) == (False, True)  # a rehearsal did not reboot


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
    left, spent = list(states), [0.0]

    def passes(seconds):
        spent[0] += seconds

    def facts(_self):
        loaded = None if left else {"version": "580.95.05", "flavour": "open"}
        return {**FACTS, "driver": {"loaded": loaded}}

    monkeypatch.setattr(gpu_reboot_need.Machine, "facts", facts)
    monkeypatch.setattr(gpu_reboot_need.process, "output", lambda *_words: (1, left.pop(0) + "\n", ""))
    monkeypatch.setattr(gpu_reboot_need.time, "sleep", passes)
    monkeypatch.setattr(gpu_reboot_need.time, "monotonic", lambda: spent[0])
    failed, result = run_module(gpu_reboot_need, **WANTED, after_reboot=True, wait=patience)
    assert failed is not runs
    assert spent[0] <= patience + 2
    assert runs or result["gpu_failure"]["reference"] == "GS-496"


def test_no_boot_brings_what_nouveau_or_another_version_keeps_out(run_module, monkeypatch):
    monkeypatch.setattr(gpu_reboot_need.time, "sleep", lambda _seconds: pytest.fail("waits for nothing"))
    for found in ({"nouveau": {"loaded": True}}, {"driver": {"loaded": {"version": "570.1", "flavour": "open"}}}):
        facts = {**FACTS, "driver": {"loaded": None}, **found}
        monkeypatch.setattr(gpu_reboot_need.Machine, "facts", lambda _self, facts=facts: facts)
        failed, _result = run_module(gpu_reboot_need, **WANTED, after_reboot=True, wait=300)
        assert failed


SIGNED = {"path": "/lib/modules/6.1/extra/nvidia.ko", "signed": True, "signer": "DKMS", "key": "1a"}
OWN = {"serial": "1a", "issuer": "DKMS", "key": "2b", "enrolled": False}


def with_secure_boot(module, *keys):
    kernel = {"running": "6.1", "next": "6.1", "installed": [{"release": "6.1", "nvidia": module}]}
    return {"secure_boot": True, "kernel": kernel, "firmware": {"signing_keys": list(keys), "password": None}}


def test_a_reboot_that_could_not_help_is_not_made(ask):
    failed, result = ask(None, with_secure_boot({**SIGNED, "signed": False, "signer": None, "key": None}, OWN))
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-495"
    assert "not signed" in result["gpu_failure"]["note"]


@pytest.mark.parametrize(("keys", "console"), [((OWN,), True), (({**OWN, "serial": "3c"},), False), ((), False)])
def test_only_a_key_of_this_host_asks_for_somebody_at_the_console(ask, keys, console):
    failed, result = ask(None, with_secure_boot(SIGNED, *keys))
    assert (failed, result["needed"], result["console"]) == (False, True, console)


def test_nothing_goes_on_after_a_reboot_that_could_not_be_scheduled(run_module, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_reboot_stage, "stage", lambda ledger, _resume: (Path(ledger.folder) / "resume").touch())
    monkeypatch.setattr(gpu_reboot_stage.process, "output", lambda *_words: (1, "", "no"))
    failed, _result = run_module(gpu_reboot_stage, host={"state_dir": str(tmp_path)}, resume=["gpusetup", "apply"])
    assert failed
    assert not (tmp_path / "resume").exists()


def test_the_unit_that_goes_on_goes_with_removal_and_so_does_what_starts_it(tmp_path, monkeypatch):
    unit, starts = tmp_path / "system/gpusetup-resume.service", tmp_path / "system/multi-user.target.wants/it.service"
    monkeypatch.setattr(gpu_reboot_stage, "UNIT", str(unit))
    monkeypatch.setattr(gpu_reboot_stage, "STARTS", str(starts))
    ledger = Ledger(str(tmp_path / "state"))
    for _time in range(2):
        gpu_reboot_stage.stage(ledger, ["gpusetup", "apply"])
        assert starts.resolve() == unit
        assert 'ExecStart="gpusetup" "apply"' in unit.read_text()
    assert [ledger.restore(str(unit)), ledger.link(str(starts), None)] == [True, True]
    assert not os.path.lexists(starts)
    assert not unit.exists()
