"""Whether a reboot is needed, read from what is loaded and what is on disk; after one, that is a failure."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.modules import gpu_reboot_need

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
def ask(run_module: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(loaded: dict[str, str] | None, **more: Any) -> tuple[bool, dict[str, Any]]:
        facts = {**FACTS, "driver": {"loaded": loaded}}
        monkeypatch.setattr(gpu_reboot_need.Machine, "facts", lambda _self: facts)
        failed: bool
        result: dict[str, Any]
        failed, result = run_module(gpu_reboot_need, **WANTED, **more)
        return failed, result

    return call


def test_the_wanted_driver_runs(ask: Any) -> None:
    failed, result = ask({"version": "580.95.05", "flavour": "open"}, after_reboot=True)
    assert (failed, result["needed"], result["reasons"]) == (False, False, [])


def test_another_one_runs_or_none(ask: Any) -> None:
    failed, result = ask({"version": "570.1", "flavour": "open"})
    assert (failed, result["needed"]) == (False, True)
    failed, result = ask(None)
    assert (failed, result["reasons"]) == (False, ["nvidia 580.95.05 is to run, none is loaded"])


def test_after_the_reboot_that_is_a_failure_with_its_reason(ask: Any) -> None:
    failed, result = ask(None, after_reboot=True)
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-496"
    assert "none is loaded" in result["gpu_failure"]["note"]
    assert "doctor" in result["gpu_failure"]["hint"]
    failed, result = ask(None, after_reboot=True, check=True)
    assert (failed, result["needed"]) == (False, True)  # a rehearsal did not reboot
