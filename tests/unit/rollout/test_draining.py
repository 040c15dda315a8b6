"""Hosts are taken out of work before they change; what comes out well is given back, the rest is named and stays."""

from types import SimpleNamespace

import pytest

from gpusetup.drive.schedulers import Caller, Drained, SchedulerError
from gpusetup.errors import BadInputError, Exit
from gpusetup.model.lifecycle import HostOutcome
from gpusetup.model.plan import HostPlan
from gpusetup.rollout.draining import Draining, draining
from gpusetup.rollout.options import Freeing
from gpusetup.rollout.outcome import exit_of

PLANS = {name: HostPlan(state="change") for name in ("a", "b", "c", "d")}


class Recorded:
    """A scheduler whose answers are given; what it gave back is kept."""

    name = "recorded"
    call = Caller()

    def __init__(self, **answers):
        self.answers, self.given = answers, []

    def drain(self, node, _seconds):
        answer = self.answers.get(node, Drained(ok=True, ours=True))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def undrain(self, node):
        self.given.append(node)
        return "slurmd does not answer" if node == "d" else ""

    def drained_by_us(self, node):
        return node == "left"

    def by_hand(self, node):
        return f"resume {node}"


@pytest.fixture
def work():
    def make(scheduler, processes=(), nodes=None):
        facts = dict.fromkeys((*PLANS, "left"), SimpleNamespace(processes=processes))
        reporter = SimpleNamespace(say=lambda _text: None)
        rollout = SimpleNamespace(facts=facts, nodes=nodes or {}, seconds={}, reporter=reporter)
        return Draining(rollout, scheduler, drain_seconds=1.0, busy_seconds=0.0)

    return make


def test_who_is_not_free_stays_as_it_is(work):
    scheduler = Recorded(a=Drained(ok=False, why="jobs run: 7"), b=SchedulerError("GS-811", "scontrol: no such node"))
    held = work(scheduler).take(PLANS)
    assert {name: outcome.state for name, outcome in held.items()} == {"a": "postponed", "b": "refused"}
    assert held["a"].pending == ("jobs run: 7",)
    assert [exit_of(held[name]) for name in ("a", "b")] == [Exit.PENDING, Exit.REFUSED]


def test_what_came_out_well_is_given_back(work):
    scheduler = Recorded(c=Drained(ok=True, ours=False, why="drained by someone else: bad fan"))
    taken = work(scheduler, nodes={"a": "node-a"})
    assert taken.take(PLANS) == {}
    states = {"a": "done", "b": "failed", "c": "done", "d": "done"}
    outcomes = taken.give_back({name: HostOutcome(state=state) for name, state in states.items()})
    assert sorted(scheduler.given) == ["d", "node-a"]
    assert outcomes["a"].warnings == ()
    assert outcomes["b"].warnings == ("it is still drained: failed; to return it to service: resume b",)
    assert outcomes["c"].warnings == ("recorded: drained by someone else: bad fan",)
    assert "slurmd does not answer" in outcomes["d"].warnings[0]


def test_what_an_earlier_run_left_is_given_back_once_it_is_as_wanted(work):
    scheduler = Recorded()
    outcomes = {
        "left": HostOutcome(state="unchanged"), "a": HostOutcome(state="unchanged"), "b": HostOutcome(state="failed"),
    }  # fmt: skip
    assert set(work(scheduler).left_behind(outcomes)) == {"left"}
    assert scheduler.given == ["left"]


def test_without_a_scheduler_nobody_is_asked(work):
    assert work(None).take(PLANS) == {}
    assert work(None).left_behind({"a": HostOutcome(state="unchanged")}) == {}


@pytest.mark.parametrize(
    ("option", "words"),
    [("--drain", {"drain": "mytool drain"}), ("--drain", {"drain": "mytool 'drain {node}"}),
     ("--undrain", {"drain": "mytool {node}", "undrain": "mytool back"})],
)  # fmt: skip
def test_a_command_that_cannot_be_is_told_before_any_host_is_touched(option, words):
    with pytest.raises(BadInputError) as caught:
        draining(Freeing(**words), SimpleNamespace())
    assert (caught.value.reference, caught.value.path) == ("GS-813", option)


def test_a_stop_while_slurmd_starts_again_is_remembered_and_the_node_given_back(work, monkeypatch, tmp_path):
    scheduler = Recorded()
    scheduler.name, taken = "slurm", work(scheduler)
    taken.rollout.session, taken.rollout.stopped = SimpleNamespace(run=SimpleNamespace(path=tmp_path)), False
    monkeypatch.setattr("gpusetup.rollout.draining.run_playbook", lambda *_a, **_k: SimpleNamespace(interrupted=True))
    taken.take(PLANS)
    taken.give_back({"a": HostOutcome(state="done", changed=1)})
    assert (taken.rollout.stopped, scheduler.given) == (True, ["a"])


def test_who_was_freed_is_given_back_when_a_person_says_stop_before_anything_changed(work, monkeypatch):
    scheduler = Recorded(c=Drained(ok=True, ours=False, why="drained by someone else: bad fan"))
    taken = work(scheduler)
    monkeypatch.setattr(taken, "_busy", lambda _changes: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        taken.take(PLANS)
    assert sorted(scheduler.given) == ["a", "b", "d"]
