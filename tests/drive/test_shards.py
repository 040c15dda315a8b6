"""A large fleet in several Ansible processes: whoever hangs or dies costs its own shard alone."""

import json

import pytest

from gpusetup.drive import shards as shards_module
from gpusetup.drive.playbook import run_playbook
from tests.stored import stored

PROGRAM = stored("sharded-ansible.py.txt")
WAITS = "while shard == 0 and Path(os.environ['GPUSETUP_EVENTS']).read_text().count('\"end\"') < 2: time.sleep(0.05)"


@pytest.fixture
def large(ansible, monkeypatch):
    """Run a playbook over so many hosts, ten to a shard; BEFORE and AFTER are what every process does of its own."""
    monkeypatch.setenv(shards_module.SIZE, "10")

    def go(total, before="pass", after="pass", **words):
        program = PROGRAM.replace("TOTAL", str(total)).replace("BEFORE", before).replace("AFTER", after)
        session = ansible(program)
        done = run_playbook(session, "apply", deadline=60, **words)
        by_shard = {name: (host.data.get("gpu_packages") or {}).get("shard") for name, host in done.track.hosts.items()}
        return done, by_shard, session

    return go


@pytest.mark.parametrize(("total", "at_once"), [(10, False), (35, True)])
def test_a_small_fleet_and_one_that_is_worked_on_at_the_same_moment_have_one_process(large, total, at_once):
    _done, by_shard, _session = large(total, at_once=at_once)
    assert set(by_shard.values()) == {0}


def test_a_large_fleet_is_shared_out_evenly_and_everybody_is_worked_on_once_in_the_inventorys_order(large):
    done, by_shard, session = large(35)
    assert list(by_shard) == [f"h{number}" for number in range(35)]
    sizes = [list(by_shard.values()).count(shard) for shard in range(4)]
    assert sizes == [9, 9, 9, 8]
    assert done.finished.ok
    told = [json.loads(line)["event"] for line in session.run.events.read_text().splitlines()]
    assert told.count("ok") == 35


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_shard_whose_ansible_dies_leaves_a_verdict_for_its_hosts_alone(large, when):
    done, by_shard, _session = large(30, **{when: "os.kill(os.getpid(), signal.SIGKILL) if shard == 1 else None"})
    failed = {name for name, host in done.track.hosts.items() if host.failure is not None}
    assert failed == {f"h{number}" for number in range(10, 20)}
    assert "ended early (exit -9)" in done.track.hosts["h12"].failure.message
    assert by_shard["h5"] == 0
    assert by_shard["h25"] == 2


def test_a_host_that_hangs_holds_up_no_other_shard(large, monkeypatch):
    monkeypatch.setattr(shards_module, "_SILENT_SECONDS", 0.5)
    monkeypatch.setattr(shards_module, "_BESIDE", 1)
    done, by_shard, session = large(30, after=WAITS)
    assert done.finished.ok
    order = [json.loads(line) for line in session.run.events.read_text().splitlines()]
    ended = [event["shard"] for event in order if event["event"] == "end"]
    assert (ended[-1], sorted(ended)) == (0, [0, 1, 2])
    assert set(by_shard.values()) == {0, 1, 2}
