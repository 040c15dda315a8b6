"""A rollout in batches: verified one after the other, ended by too many failures, nobody forgotten."""

from types import SimpleNamespace

import pytest

from gpusetup.cli import apply, verification
from gpusetup.cli.resume import stopped_rollout
from gpusetup.drive.rundir import new_run
from gpusetup.errors import BadInputError
from gpusetup.model.plan import HostPlan
from gpusetup.model.run import HostOutcome
from gpusetup.model.stack import MatrixStamp

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def roll(tmp_path, monkeypatch):
    """Apply five hosts, of which some fail; return their states and the batches that were begun and verified."""

    def run(bad, **words):
        changed, verified = [], []

        def change(_arguments, _rollout, changes):
            changed.append(tuple(changes))
            return {name: HostOutcome(state=bad.get(name, "done"), seconds=1.0) for name in changes}

        def verify(_rollout, outcomes, *, always=False):
            if outcomes:
                verified.append((tuple(outcomes), always))
            return {
                name: HostOutcome(state="verify-failed", seconds=1.0) if bad.get(name) == "sick" else outcome
                for name, outcome in outcomes.items()
            }

        monkeypatch.setattr(apply, "_change", change)
        monkeypatch.setattr(verification, "verify_hosts", verify)
        session = SimpleNamespace(environment={"GPUSETUP_STATE": str(tmp_path)}, run=new_run(tmp_path))
        plans = {"x": HostPlan(state="unchanged")} | {name: HostPlan(state="change") for name in NAMES}
        stamp = SimpleNamespace(matrix=MatrixStamp(date="2026-01-01", digest="0"))
        facts = dict.fromkeys(plans, SimpleNamespace(processes=()))
        rollout = SimpleNamespace(
            session=session, plans=plans, facts=facts, nodes={}, seconds={}, document=lambda: stamp
        )
        arguments = SimpleNamespace(
            inventory="hosts.ini", verify="auto", check=False, batch="", max_fail=0, resume=False
        )
        vars(arguments).update(words)
        applied = apply.carry_out(arguments, rollout)
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


def test_a_run_that_ended_before_its_first_batch_leaves_nothing(roll, monkeypatch):
    monkeypatch.setattr(apply, "_announce", lambda _changes: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        roll({}, batch="1")
    with pytest.raises(BadInputError):  # nothing had begun
        stopped_rollout(roll.home, "hosts.ini")


def test_nothing_is_left_of_a_rollout_that_ended_well(roll):
    roll({}, batch="1,50%")
    with pytest.raises(BadInputError, match="has stopped with hosts left"):
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
