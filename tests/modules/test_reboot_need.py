"""Whether a reboot is needed, read from what is loaded and what is on disk; after one, that is a failure."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.modules import gpu_reboot_need

WANTED = {"host": {"state_dir": "/var/lib/gpusetup"}, "version": "580.95.05", "flavour": "open", "kernels": ["6.1"]}


class Machine:
    """A host with one loaded module, or none."""

    host = None

    def __init__(self, loaded: dict[str, str] | None) -> None:
        self._loaded = loaded

    def kernels(self) -> dict[str, str]:
        return {"running": "6.1", "next": "6.1"}

    def loaded_nvidia(self) -> dict[str, str] | None:
        return self._loaded

    def loaded(self) -> list[str]:
        return ["nvidia"] if self._loaded else []

    def wanted_kernels(self, kernels: list[str]) -> list[str]:
        return kernels


@pytest.fixture
def ask(run_module: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(loaded: dict[str, str] | None, **more: Any) -> tuple[bool, dict[str, Any]]:
        monkeypatch.setattr(gpu_reboot_need, "Machine", lambda _root: Machine(loaded))
        monkeypatch.setattr(gpu_reboot_need.signing, "waiting", lambda _machine: None)
        monkeypatch.setattr(gpu_reboot_need.sessions, "gpu_processes", lambda _host: [])
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
    assert (failed, result["reasons"]) == (False, ["nvidia 580.95.05 is on disk, none is loaded"])


def test_after_the_reboot_that_is_a_failure_with_its_reason(ask: Any) -> None:
    failed, result = ask(None, after_reboot=True)
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-496"
    assert "none is loaded" in result["gpu_failure"]["note"]
    assert "doctor" in result["gpu_failure"]["hint"]
    failed, result = ask(None, after_reboot=True, check=True)
    assert (failed, result["needed"]) == (False, True)  # a rehearsal did not reboot
