"""Units are enabled and started with what they were before on record, and nothing is called done that is not."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import process, services
from ansible_collections.gpusetup.stack.plugins.modules import gpu_service

from tests.modules.stand_ins import refused, write

UNIT = "nvidia-fabricmanager.service"


@pytest.fixture
def host(host):
    host.unit(UNIT, "inactive")
    return host


@pytest.fixture
def start(host, run_module):
    return lambda **more: run_module(gpu_service, host=host.given, **{"names": [UNIT], **more})


def _is(host):
    return (host.root / "enabled" / UNIT).exists(), (host.root / "units" / UNIT).read_text().strip()


def taken_back(host):
    """Take the unit back as removal does; return what of it is on record then."""
    assert services.take_down(host.ledger, process.environment()) == [UNIT]
    assert _is(host) == (False, "inactive")
    return host.ledger.state["open"], host.ledger.state["services"]


@pytest.mark.parametrize("again", [True, False])
def test_a_unit_that_does_not_start_is_on_record_as_it_was_and_is_taken_back(host, start, again):
    host.refuse("start", UNIT)
    assert start(fails=f"{UNIT} did not start")["gpu_failure"]["message"] == f"{UNIT} did not start"
    assert _is(host) == (True, "inactive")
    assert list(host.ledger.state["open"]) == ["unit:" + UNIT]
    if again:
        host.refuse()
        start()
        assert host.ledger.state["open"] == {}
        assert host.ledger.state["services"][UNIT]["was_enabled"] is False
    assert taken_back(host) == ({}, {})


def test_a_masked_unit_is_named_with_the_command_that_unmasks_it(host, start):
    host.unit(UNIT, "masked")
    start(fails=["somebody has masked " + UNIT, "systemctl unmask " + UNIT])


@pytest.mark.parametrize("verb", ["stop", "disable"])
def test_a_unit_that_still_runs_stays_on_record(host, start, verb):
    start()
    host.refuse(verb, UNIT)
    with refused(f"{UNIT} still runs"):
        services.take_down(host.ledger, process.environment())
    assert UNIT in host.ledger.state["services"]
    assert list(host.ledger.state["open"]) == ["unit:" + UNIT]
    host.refuse()
    assert taken_back(host) == ({}, {})


def test_a_unit_that_is_wanted_no_more_is_as_it_was(host, start):
    assert start()["changed"] is True
    assert [start(names=[], give_up=[UNIT])["changed"] for _ in range(2)] == [True, False]
    assert (_is(host), host.ledger.state["services"]) == ((False, "inactive"), {})


def test_what_an_administrator_switched_off_since_stays_off(host, start):
    write(host.root, {f"enabled/{UNIT}": ""})
    host.unit(UNIT, "active")
    assert start()["changed"] is False
    (host.root / "enabled" / UNIT).unlink()
    host.unit(UNIT, "inactive")
    assert services.take_down(host.ledger, process.environment()) == []
    assert _is(host) == (False, "inactive")
