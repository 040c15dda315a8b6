"""A rollout in batches: verified one after the other, ended by too many failures, nobody forgotten."""

from types import SimpleNamespace

import pytest

from gpusetup.cli import apply, verification
from gpusetup.drive.rundir import new_run
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
        arguments = SimpleNamespace(verify="auto", check=False, batch="", max_fail=0)
        vars(arguments).update(words)
        applied = apply.carry_out(arguments, rollout)
        return {name: outcome.state for name, outcome in applied.hosts.items()}, changed, verified

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
