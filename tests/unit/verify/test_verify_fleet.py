"""Observing a fleet: what each host is asked, who takes part in what, and what becomes of hosts that do not answer."""

from types import SimpleNamespace

import pytest
from msgspec import UNSET

from gpusetup.drive.events import Failure, Track
from gpusetup.verify import fleet
from gpusetup.verify.fleet import hosts_plan, observe_fleet
from gpusetup.verify.probe import Ask, Observed, deadline
from gpusetup.verify.smi import parse_gpus, parse_topology
from tests.unit.verify.verify_documents import captured


@pytest.fixture
def playbooks(monkeypatch):
    """Stand in for Ansible: answer each playbook with prepared data, and keep what was asked."""
    asked = []

    def prepare(**answers):
        def run(session, name, *, deadline, variables=None, observer=None, at_once=False):
            assert at_once is (name == "verify_between"), "a fleet in parts would wait for those that are not there yet"
            asked.append((name, variables, session.reach.forks))
            track = Track()
            for host, found in answers[name].items():
                record = track.host(host)
                record.connection = {"ansible_host": f"10.0.0.{len(track.hosts)}"}
                if isinstance(found, Failure):
                    record.failure = found
                else:
                    record.data["gpu_verify"] = {"observations": captured(found)}
            return SimpleNamespace(track=track, interrupted=False)

        monkeypatch.setattr(fleet, "run_playbook", run)
        return asked

    return prepare


def test_hosts_that_do_not_answer_are_data(session, playbooks):
    gone = Failure("Look", "Connection refused", unreachable=True)
    playbooks(verify={"a": "h200-x1-quick", "b": gone, "c": Failure("Look", "the probe was killed after 90 s")})
    found = observe_fleet(session, Ask(level="quick"))
    assert found["a"].document["level"] == "quick"
    assert (found["b"].document, found["b"].unreachable) == (None, True)
    assert (found["c"].problem, found["c"].unreachable) == ("the probe was killed after 90 s", False)


def test_two_gpu_hosts_are_measured_against_each_other(session, playbooks):
    asked = playbooks(
        verify={"gpu1": "h200-x4-full", "cpu1": "h200-x1-no-device", "gpu2": "h200-x2-full"},
        verify_between={"gpu1": "h200-x4-hosts-first", "gpu2": Failure("Take part", "no answer")},
    )
    found = observe_fleet(session, Ask(level="full"))
    name, variables, forks = asked[1]
    assert (name, forks) == ("verify_between", 2), "all of them at the same moment"
    assert variables.gpusetup_verify_group == ("gpu1", "gpu2")
    assert len(variables.gpu_verify_token) >= 32
    assert found["gpu1"].document["sections"]["hosts"]["world"] == 4
    assert found["gpu2"].document["sections"]["hosts"]["error"] == "failed"
    assert "hosts" not in found["cpu1"].document["sections"]


def test_one_gpu_host_has_nobody_to_talk_to(session, playbooks):
    asked = playbooks(verify={"gpu1": "h200-x4-full", "cpu1": "h200-x1-no-device"})
    observe_fleet(session, Ask(level="full"))
    assert [name for name, _, _ in asked] == ["verify"]


def test_ranks_are_dealt_without_gaps_and_busy_hosts_stay_out():
    names = {"b": "h200-x2-full", "a": "h200-x4-full", "c": "h200-x1-busy"}
    observed = {host: Observed(captured(name)) for host, name in names.items()}
    plan = hosts_plan(observed, {"a": {"ansible_host": "192.0.2.1"}})
    assert list(plan) == ["a", "b"]
    assert [(part.number, part.first, part.local, part.world) for part in plan.values()] == [(0, 0, 4, 6), (1, 4, 2, 6)]
    assert {part.address for part in plan.values()} == {"192.0.2.1"}
    assert len({part.port for part in plan.values()}) == 1


@pytest.mark.parametrize(("python", "told"), [(None, UNSET), ("/usr/bin/python3", "/usr/bin/python3")])
def test_an_inventory_keeps_its_own_python(session, playbooks, python, told):
    asked = playbooks(verify={"a": "h200-x1-quick"})
    observe_fleet(session, Ask(level="quick", python=python))
    assert asked[0][1].gpu_verify_python == told


def test_a_long_stress_has_a_long_deadline():
    assert deadline(Ask(level="stress", minutes=60)) > 3600 > deadline(Ask(level="smoke"))


def test_a_pci_domain_beyond_four_digits():
    text = '<nvidia_smi_log><gpu id="00010000:3A:00.0"><uuid>GPU-1</uuid></gpu><gpu id="00000000:06:00.0"><uuid>GPU-2</uuid></gpu></nvidia_smi_log>'
    assert [gpu.bus_id for gpu in parse_gpus(text)] == ["10000:3a:00.0", "0000:06:00.0"]


def test_documents_with_entities_are_not_parsed():
    assert parse_gpus('<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log><gpu id="1">&b;</gpu></nvidia_smi_log>') == ()


def test_a_topology_with_network_cards():
    text = "\x1b[4m\tGPU0\tGPU1\tNIC0\tCPU Affinity\x1b[0m\nGPU0\t X \tNV12\tPXB\t0-31\nGPU1\tNV12\t X \tSYS\t0-31\nNIC0\tPXB\tSYS\t X \t\n\nLegend:\n"
    assert parse_topology(text) == (("X", "NV12"), ("NV12", "X"))
