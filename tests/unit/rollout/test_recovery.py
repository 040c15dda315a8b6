"""Hosts are taken out of work before they change and given back after; what they need to recover is asked of each."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from gpusetup.drive.events import Failure
from gpusetup.drive.schedulers import Caller, Drained, SchedulerError
from gpusetup.errors import BadInputError, Exit
from gpusetup.model.diagnosis import Diagnosis
from gpusetup.model.lifecycle import HostOutcome
from gpusetup.model.plan import HostPlan
from gpusetup.model.variables import Owner
from gpusetup.recovery.table import of_driver, of_xid, recovery
from gpusetup.rollout import draining as draining_module
from gpusetup.rollout import recovery as module
from gpusetup.rollout.draining import Draining, draining
from gpusetup.rollout.looks import Rollout
from gpusetup.rollout.options import Freeing
from gpusetup.rollout.outcome import exit_of
from gpusetup.rollout.recovery import Hosts, prepare, recover
from tests.refusals import refused
from tests.stored import stored_rows

GPU = "0000:17:00.0"
NEEDS = {
    "well": None, "reset": of_driver("Reset", [GPU]), "reboot": of_xid(79, [GPU]),
    "drain": of_driver("Drain P2P", [GPU]), "both": of_driver("Drain and Reset", [GPU]),
    "board": recovery("support", ["a row cannot be replaced"], [GPU]), "unknown": of_xid(119),
}  # fmt: skip


class Scheduler:
    """A scheduler whose answers are given; whom it took and gave back is kept."""

    name = "recorded"
    call = Caller()

    def __init__(self, **answers):
        self.answers, self.taken, self.given = answers, [], []

    def drain(self, node, _seconds):
        self.taken.append(node)
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


def diagnosis(wanted):
    return Diagnosis(healthy=wanted is None, cause=None, ruled=(), recovery=wanted)


def facts(name, sessions=(), vgpu=False):
    return SimpleNamespace(
        boot=SimpleNamespace(id="one", machine=name), display=SimpleNamespace(sessions=sessions), vgpu_guest=vgpu, processes=(),
        packages=SimpleNamespace(manager="apt"),
    )  # fmt: skip


def real(made):
    """What the play that acts was told of each host."""
    return next(variables for name, check, variables in made.asked if name == "recover" and not check)


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """Hosts with these needs; `asked` keeps what each play was told, `fails` what a host answers, `after` what is left."""

    def make(*names, scheduler=None, local=(), busy=(), policies=None, sessions=(), vgpu=()):
        asked = []
        made = SimpleNamespace(asked=asked, fails={}, after={}, busy=set(busy))

        def play(_session, name, *, check=False, **_more):
            users = {host: {"processes": [{"command": "python3", "pid": 7}]} for host in made.busy}
            hosts = {
                host: SimpleNamespace(failure=made.fails.get(host), data={"gpu_reboot_need": users.get(host, {})})
                for host in made.overlay
            }
            asked.append((name, check, made.variables))
            return SimpleNamespace(interrupted=False, track=SimpleNamespace(host=hosts.__getitem__))

        def overlay(folder, variables):
            made.overlay = list(variables)
            made.variables = {host: to_builtins(told) for host, told in variables.items()}
            return folder

        for where in (module, draining_module):
            monkeypatch.setattr(where, "run_playbook", play)
            monkeypatch.setattr(where, "write_overlay", overlay)
        owner = Owner(controller="c", user="u", run="r", home="h", alive=(), turns=1)
        monkeypatch.setattr(module, "owner_of", lambda *_: owner)
        rollout = SimpleNamespace(
            facts={name: facts(name, sessions=("kim",) if name in sessions else (), vgpu=name in vgpu) for name in names},
            settings={name: SimpleNamespace(reboot=(policies or {}).get(name)) for name in names},
            nodes={}, seconds={}, local=lambda name: name in local,
            reporter=SimpleNamespace(say=lambda _text: None, watch=lambda _phase: nullcontext()),
            session=SimpleNamespace(
                environment={"GPUSETUP_STATE": str(tmp_path)}, run=SimpleNamespace(path=tmp_path, id="now"),
                reach=SimpleNamespace(inventory="hosts.ini"), command="doctor",
            ),
        )  # fmt: skip

        rollout.reboot_policy = partial(Rollout.reboot_policy, rollout)

        def again(which):
            same = SimpleNamespace(boot=SimpleNamespace(id="one"))
            return {name: SimpleNamespace(left=made.after.get(name), facts=same) for name in which}

        monkeypatch.setattr(module, "diagnose", lambda look: diagnosis(look.left))
        work = Draining(rollout, scheduler, drain_seconds=1.0, busy_seconds=0.0)
        made.hosts = Hosts(rollout, {}, {name: diagnosis(NEEDS[name]) for name in names}, work, again)
        return made

    return make


def test_before_anything_is_done_every_host_says_what_would_be(fleet):
    made = fleet(*NEEDS)
    made.fails["both"] = Failure(
        "Reset", "x", document={"reference": "GS-423", "message": "programs use it", "hint": "wait"}
    )
    found = prepare(made.hosts)
    assert {name: (told.state, told.reference) for name, told in found.items()} == {
        "well": ("nothing-to-do", ""), "reset": ("planned", ""), "reboot": ("planned", ""), "drain": ("refused", "GS-425"),
        "both": ("refused", "GS-423"), "board": ("by-hand", ""), "unknown": ("refused", "GS-426"),
    }  # fmt: skip
    ((name, check, variables),) = made.asked
    assert (name, check, sorted(variables)) == ("recover", True, ["both", "reset"])
    assert variables["reset"]["gpu_recover_gpus"] == (GPU,)
    assert variables["reset"]["gpu_recover_reboot"] is False


@pytest.mark.parametrize(("settings", "policy", "words"), stored_rows("recovery-reboot-policy.json"))
def test_a_host_reboots_only_where_it_may(fleet, settings, policy, words):
    made = fleet("reboot", **settings)
    told = recover(made.hosts, prepare(made.hosts))["reboot"]
    assert (told.state, told.did) == ("pending-reboot", ())
    assert words in told.message or (policy == "schedule" and "this machine" in told.message)
    assert made.asked[0][2]["reboot"]["gpu_reboot_policy"] == policy


def test_a_drained_host_is_given_back_when_it_is_well_and_named_when_it_is_not(fleet):
    scheduler = Scheduler()
    made = fleet("reset", "both", "drain", scheduler=scheduler)
    made.after["both"] = NEEDS["both"]
    found = recover(made.hosts, prepare(made.hosts))
    assert (sorted(scheduler.taken), sorted(scheduler.given)) == (["both", "drain", "reset"], ["drain", "reset"])
    assert (found["drain"].state, found["drain"].did) == ("done", ("drained",))
    assert "to return it to service: resume both" in found["both"].hint
    assert "drain" not in real(made)


def test_programs_that_stay_keep_their_gpu_and_the_node_is_given_back(fleet):
    scheduler = Scheduler()
    made = fleet("both", scheduler=scheduler, busy=["both"])
    found = recover(made.hosts, {"both": replace(prepare(made.hosts)["both"], state="planned")})
    assert (found["both"].state, found["both"].reference) == ("refused", "GS-423")
    assert "python3 (7)" in found["both"].message
    assert scheduler.given == ["both"]


@pytest.mark.parametrize(("unreachable", "busy"), [(False, ["both"]), (True, [])])
def test_a_host_whose_programs_cannot_be_listed_is_not_free(fleet, unreachable, busy):
    """An unreachable host is left to the next play, which says that it is."""
    made = fleet("both")
    made.fails["both"] = Failure("Who uses the GPUs", "no nvidia-smi", unreachable)
    assert list(made.hosts.draining.wait_idle({"both"})) == busy


def test_a_stop_while_a_drained_host_is_reset_names_it(fleet, monkeypatch):
    made = fleet("both", scheduler=Scheduler())
    monkeypatch.setattr(made.hosts.draining, "wait_idle", lambda _names: {})
    monkeypatch.setattr(module, "_act", lambda *_words: (_ for _ in ()).throw(KeyboardInterrupt))
    said = []
    made.hosts.rollout.reporter.say = said.append
    with pytest.raises(KeyboardInterrupt):
        recover(made.hosts, prepare(made.hosts))
    assert said[-1] == "both: it is still drained: the run ended early; to return it to service: resume both"


def test_a_vgpu_is_reset_by_whoever_owns_the_board(fleet):
    made = fleet("reset", vgpu=["reset"])
    told = prepare(made.hosts)["reset"]
    assert (told.state, told.reference, made.asked) == ("refused", "GS-422", [])


PLANS = {name: HostPlan(state="change") for name in ("a", "b", "c", "d")}


def work(scheduler):
    facts = dict.fromkeys((*PLANS, "left"), SimpleNamespace(processes=()))
    reporter = SimpleNamespace(say=lambda _text: None)
    rollout = SimpleNamespace(facts=facts, nodes={}, seconds={}, reporter=reporter)
    return Draining(rollout, scheduler, drain_seconds=1.0, busy_seconds=0.0)


def test_who_is_not_free_stays_as_it_is_and_a_node_that_cannot_be_given_back_is_named(monkeypatch):
    refusing = SchedulerError("GS-811", "scontrol: no such node")
    taken = work(Scheduler(a=Drained(ok=False, ours=True, why="jobs run: 7"), b=refusing))
    monkeypatch.setattr(taken, "wait_idle", lambda _names: {"c": "python3", "d": "python3"})
    held = taken.take(PLANS)
    assert [(name, exit_of(held[name])) for name in "ab"] == [("a", Exit.PENDING), ("b", Exit.REFUSED)]
    assert {name: outcome.pending for name, outcome in held.items()} == {
        "a": ("jobs run: 7; it is still drained: to return it to service: resume a",), "b": (), "c": ("python3",),
        "d": ("python3; it is still drained: slurmd does not answer; to return it to service: resume d",),
    }  # fmt: skip


def test_what_an_earlier_run_left_is_given_back_once_it_is_as_wanted():
    scheduler = Scheduler()
    outcomes = {
        "left": HostOutcome(state="unchanged"), "a": HostOutcome(state="unchanged"), "b": HostOutcome(state="failed"),
    }  # fmt: skip
    assert set(work(scheduler).left_behind(outcomes)) == {"left"}
    assert scheduler.given == ["left"]
    assert work(None).left_behind(outcomes) == {}
    scheduler.drained_by_us = lambda _node: (_ for _ in ()).throw(SchedulerError("GS-811", "scontrol: no answer"))
    assert work(scheduler).left_behind(outcomes)["a"].warnings == ("recorded: scontrol: no answer",)


@pytest.mark.parametrize(
    ("option", "words"),
    [("--drain", {"drain": "mytool drain"}), ("--drain", {"drain": "mytool 'drain {node}"}),
     ("--undrain", {"drain": "mytool {node}", "undrain": "mytool back"})],
)  # fmt: skip
def test_a_command_that_cannot_be_is_told_before_any_host_is_touched(option, words):
    with refused(BadInputError, "GS-813", path=option):
        draining(Freeing(**words), SimpleNamespace())


def test_a_stop_while_slurmd_starts_again_is_remembered_and_the_node_given_back(monkeypatch, tmp_path):
    scheduler = Scheduler()
    scheduler.name, taken = "slurm", work(scheduler)
    taken.rollout.session, taken.rollout.stopped = SimpleNamespace(run=SimpleNamespace(path=tmp_path)), False
    monkeypatch.setattr("gpusetup.rollout.draining.run_playbook", lambda *_a, **_k: SimpleNamespace(interrupted=True))
    taken.take(PLANS)
    taken.give_back({"a": HostOutcome(state="done", changed=1)})
    assert (taken.rollout.stopped, scheduler.given) == (True, ["a"])


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_who_was_freed_is_given_back_or_named_when_a_run_ends_before_anything_changed(monkeypatch, stop):
    scheduler = Scheduler(c=Drained(ok=True, ours=False, why="drained by someone else: bad fan"))
    taken, said = work(scheduler), []
    taken.rollout.reporter.say = said.append
    monkeypatch.setattr(taken, "wait_idle", lambda _names: (_ for _ in ()).throw(stop))
    with pytest.raises(type(stop) if isinstance(stop, OSError) else stop), taken.telling():
        taken.take(PLANS)
    assert sorted(scheduler.given) == ["a", "b", "d"]
    still = "d: it is still drained: the run ended early; to return it to service: resume d"
    assert said[1:] == ["returning 3 nodes to service", still]
