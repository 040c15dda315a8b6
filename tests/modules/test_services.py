"""Units are enabled and started with what they were before on record, and nothing is called done that is not."""

import json
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import process, services
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.modules import gpu_service

from tests.modules.gpu_host_stand_in import Host

UNIT = "nvidia-fabricmanager.service"


@pytest.fixture
def host(tmp_path, monkeypatch):
    host = Host(tmp_path, monkeypatch)
    host.unit(UNIT, "inactive")
    return host


@pytest.fixture
def start(host, run_module):
    def call(**more):
        state = {"state_dir": str(host.root / "state")}
        answer: tuple[bool, dict[str, Any]] = run_module(gpu_service, host=state, **{"names": [UNIT], **more})
        return answer

    return call


def _is(host: Host) -> tuple[bool, str]:
    return (host.root / "enabled" / UNIT).exists(), (host.root / "units" / UNIT).read_text().strip()


def test_a_unit_that_does_not_start_is_on_record_as_it_was(host, start):
    (host.root / "refused").write_text(f"start {UNIT}\n")
    failed, result = start()
    assert (failed, result["gpu_failure"]["message"]) == (True, f"{UNIT} did not start")
    assert _is(host) == (True, "inactive")
    assert host.ledger.unfinished() == ["unit " + UNIT]

    (host.root / "refused").unlink()
    assert start()[0] is False
    assert host.ledger.unfinished() == []
    assert host.ledger.state["services"][UNIT]["was_enabled"] is False

    assert services.take_down(host.ledger, process.environment()) == [UNIT]
    assert _is(host) == (False, "inactive")


def test_what_could_not_be_started_is_taken_back_all_the_same(host, start):
    (host.root / "refused").write_text(f"start {UNIT}\n")
    assert start()[0]
    assert services.take_down(host.ledger, process.environment()) == [UNIT]
    assert _is(host) == (False, "inactive")
    assert (host.ledger.unfinished(), host.ledger.state["services"]) == ([], {})


@pytest.mark.parametrize(("refused", "still"), [("stop", f"{UNIT} still runs"), ("disable", f"{UNIT} still runs")])
def test_a_unit_that_still_runs_stays_on_record(host, start, refused, still):
    assert not start()[0]
    (host.root / "refused").write_text(f"{refused} {UNIT}\n")
    with pytest.raises(HostFailure, match=still):
        services.take_down(host.ledger, process.environment())
    assert UNIT in host.ledger.state["services"]
    assert host.ledger.unfinished() == ["unit " + UNIT]

    (host.root / "refused").unlink()
    assert services.take_down(host.ledger, process.environment()) == [UNIT]
    assert _is(host) == (False, "inactive")
    assert host.ledger.state["services"] == {}


def test_the_entry_is_on_the_disk_before_the_unit_is_touched(host, start, monkeypatch):
    real, seen = process.output, []

    def output(argv: Any, *more: Any) -> Any:
        if argv[1] == "enable":
            seen.append(json.loads((host.root / "state/state.json").read_text()))
        return real(argv, *more)

    monkeypatch.setattr(process, "output", output)
    assert not start()[0]
    assert seen[0]["open"]["unit:" + UNIT]["before"]["enabled"] is False
    assert seen[0]["services"][UNIT] | {"link": ""} == {
        "was_enabled": False, "was_active": False, "enabled": True, "link": "",
    }  # fmt: skip


def test_a_unit_that_is_wanted_no_more_is_as_it_was(host, start):
    assert start()[1]["changed"] is True
    assert [start(names=[], give_up=[UNIT])[1]["changed"] for _ in range(2)] == [True, False]
    assert (_is(host), host.ledger.state["services"]) == ((False, "inactive"), {})


def test_what_an_administrator_switched_off_since_stays_off(host, start):
    (host.root / "enabled").mkdir(exist_ok=True)
    (host.root / "enabled" / UNIT).touch()
    host.unit(UNIT, "active")
    assert start()[1]["changed"] is False
    (host.root / "enabled" / UNIT).unlink()
    host.unit(UNIT, "inactive")
    assert services.take_down(host.ledger, process.environment()) == []
    assert _is(host) == (False, "inactive")
