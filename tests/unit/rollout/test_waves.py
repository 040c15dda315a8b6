"""A rollout in batches: verified one after the other, ended by too many failures, nobody forgotten."""

import json
from types import SimpleNamespace

import pytest

from gpusetup.drive.engines.base import Ansible
from gpusetup.drive.rundir import new_run
from gpusetup.errors import BadInputError
from gpusetup.model.plan import HostPlan
from gpusetup.model.run import HostOutcome
from gpusetup.model.stack import MatrixStamp
from gpusetup.rollout import waves
from gpusetup.rollout.batches import stopped_rollout
from gpusetup.rollout.options import Applying

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def roll(tmp_path, monkeypatch):
    """Apply five hosts, of which some fail; return their states and the batches that were begun and verified."""

    def run(bad, cut=None, domains=None, **words):
        changed, verified = [], []

        def change(_rollout, changes, _reboots, *, check):
            changed.append(tuple(changes))
            if cut == ("change", len(changed)):
                raise KeyboardInterrupt
            return {name: HostOutcome(state=bad.get(name, "done"), seconds=1.0) for name in changes}

        def verify(_rollout, outcomes, *, always=False):
            if cut == ("verify", len(verified) + 1):
                raise KeyboardInterrupt
            if outcomes:
                verified.append((tuple(outcomes), always))
            return {
                name: HostOutcome(state="verify-failed", seconds=1.0) if bad.get(name) == "sick" else outcome
                for name, outcome in outcomes.items()
            }

        def begins(_changes):
            if cut == "begins":
                raise KeyboardInterrupt

        monkeypatch.setattr(waves, "_change", change)
        monkeypatch.setattr(waves, "verify_hosts", verify)
        reach = SimpleNamespace(inventory="hosts.ini")
        session = SimpleNamespace(
            environment={"GPUSETUP_STATE": str(tmp_path)},
            run=new_run(tmp_path),
            reach=reach,
            command="",
            engine=Ansible(),
        )
        plans = {"x": HostPlan(state="unchanged")} | {name: HostPlan(state="change") for name in NAMES}
        stamp = SimpleNamespace(matrix=MatrixStamp(date="2026-01-01", digest="0"))
        facts = dict.fromkeys(plans, SimpleNamespace(processes=()))
        reporter = SimpleNamespace(say=lambda _text: None, begins=begins)
        rollout = SimpleNamespace(
            session=session, plans=plans, facts=facts, nodes={}, seconds={}, document=lambda: stamp, reporter=reporter,
            domains=domains or {},
        )  # fmt: skip
        run.folder = session.run
        applied = waves.carry_out(Applying(**words), rollout)
        return {name: outcome.state for name, outcome in applied.hosts.items()}, changed, verified

    run.home = tmp_path
    return run


def test_without_batches_everybody_at_once_and_verified_together(roll):
    states, changed, verified = roll({"a": "failed"})
    assert changed == [NAMES]
    assert states == {"x": "unchanged", "a": "failed"} | dict.fromkeys("bcde", "done")
    assert verified == [(("x", *NAMES), False)]


def test_each_batch_is_verified_before_the_next_begins(roll):
    states, changed, verified = roll({}, batch="1,2")
    assert changed == [("a",), ("b", "c"), ("d", "e")]
    assert verified == [*((batch, True) for batch in changed), (("x",), False)]
    assert set(states.values()) == {"done", "unchanged"}


@pytest.mark.parametrize("how", ["failed", "unreachable", "verify-failed", "interrupted"])
def test_a_canary_that_fails_ends_the_rollout(roll, how):
    states, changed, _verified = roll({"a": how}, batch="1,100%")
    assert changed == [("a",)]
    assert states == {"x": "unchanged", "a": how} | dict.fromkeys("bcde", "not-started")


def test_so_many_may_fail(roll):
    states, changed, _verified = roll({"a": "failed", "b": "failed"}, batch="1", max_fail=1)
    assert changed == [("a",), ("b",)]
    assert [states[name] for name in NAMES] == ["failed", "failed", *["not-started"] * 3]


def test_a_pending_reboot_is_no_failure(roll):
    _states, changed, _verified = roll({"a": "pending-reboot"}, batch="1,100%")
    assert len(changed) == 2


def test_a_stopped_rollout_goes_on_where_it_stopped(roll):
    roll({"c": "failed"}, batch="1,2,50%")
    stopped = stopped_rollout(roll.home, "hosts.ini")
    assert (stopped.hosts, stopped.batch) == (("c", "d", "e"), "2,50%")


def test_a_run_that_ended_before_its_first_batch_leaves_nothing(roll):
    with pytest.raises(KeyboardInterrupt):
        roll({}, cut="begins", batch="1")
    with pytest.raises(BadInputError):  # nothing had begun
        stopped_rollout(roll.home, "hosts.ini")


def test_nothing_is_left_of_a_rollout_that_ended_well(roll):
    roll({}, batch="1,50%")
    with pytest.raises(BadInputError, match="has stopped with hosts left to do"):
        stopped_rollout(roll.home, "hosts.ini")


def test_another_inventory_is_another_rollout(roll):
    roll({"a": "failed"})
    with pytest.raises(BadInputError):
        stopped_rollout(roll.home, "others.ini")


def test_a_torn_record_is_no_rollout(roll):
    roll({"a": "failed"})
    newest = max(roll.home.glob("runs/*/rollout.json"))
    newest.write_text("{")
    with pytest.raises(BadInputError):
        stopped_rollout(roll.home, "hosts.ini")


def kept(roll):
    """What the run's folder says of each host."""
    document = json.loads((roll.folder.path / "applied.json").read_bytes())
    return {name: host["state"] for name, host in document["hosts"].items()}


def test_a_person_who_stops_a_later_batch_gets_what_is_known_of_all(roll):
    states, _changed, _verified = roll({"a": "failed"}, cut=("change", 2), batch="1,2", max_fail=1)
    assert states == {"x": "unchanged", "a": "failed", "b": "interrupted", "c": "interrupted"} | dict.fromkeys(
        "de", "not-started"
    )
    assert kept(roll) == states
    assert stopped_rollout(roll.home, "hosts.ini").hosts == NAMES


def test_a_stop_while_the_last_batch_is_verified_forgets_nobody(roll):
    with pytest.raises(KeyboardInterrupt):
        roll({}, cut=("verify", 1))
    assert kept(roll) == {"x": "unchanged"} | dict.fromkeys(NAMES, "done")


RACKS = {"a": "rack-1", "b": "rack-1", "c": "rack-1", "d": "rack-2"}


def test_a_domain_with_too_many_failures_is_left_alone_and_the_others_go_on(roll, tmp_path):
    states, changed, _ = roll({"a": "failed"}, domains=RACKS, batch="1", max_fail=5, max_fail_domain=0)
    assert changed == [("a",), ("d",), ("e",)]
    assert states | {"x": ""} == {
        "a": "failed", "b": "not-started", "c": "not-started", "d": "done", "e": "done", "x": ""
    }  # fmt: skip
    applied = json.loads((roll.__dict__["folder"].path / "applied.json").read_text())
    assert applied["hosts"]["b"]["warnings"] == ["1 host of rack-1 failed"]
    assert stopped_rollout(tmp_path, "hosts.ini").hosts == ("a", "b", "c")


def test_failures_within_a_domains_budget_stop_nothing(roll):
    states, _, _ = roll({"a": "failed", "d": "failed"}, domains=RACKS, batch="1", max_fail=5, max_fail_domain=1)
    assert [states[name] for name in NAMES] == ["failed", "done", "done", "failed", "done"]
