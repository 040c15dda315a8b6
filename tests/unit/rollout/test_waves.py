"""A rollout in batches: what hosts answer, verified one after the other, ended by too many failures, nobody forgotten."""

import json
from contextlib import nullcontext, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace

from gpusetup.cli import remove
from gpusetup.cli.apply import applied_text
from gpusetup.cli.output import json_line
from gpusetup.cli.plan import plan_html, plan_text
from gpusetup.drive.events import Failure, HostProgress
from gpusetup.drive.rundir import new_run
from gpusetup.drive.schedulers import Drained
from gpusetup.errors import BadInputError, Exit
from gpusetup.model import applied as on_host
from gpusetup.model.facts import Process
from gpusetup.model.facts_machine import Boot
from gpusetup.model.lifecycle import Applied, HostOutcome, HostRemoval
from gpusetup.model.plan import Action, Away, HostPlan, Plan, Work
from gpusetup.model.settings import Settings
from gpusetup.model.stack import MatrixStamp
from gpusetup.plan.host import Draft, jobs_of
from gpusetup.rollout import verification, waves
from gpusetup.rollout.batches import stopped_rollout
from gpusetup.rollout.draining import Draining
from gpusetup.rollout.looks import _answered, twins
from gpusetup.rollout.options import Applying
from gpusetup.rollout.outcome import exit_of, outcome_of, stopped, with_downtime
from tests.hosts.machines import machine
from tests.records import record
from tests.stored import stored_rows
from tests.unit.rollout.test_recovery import Scheduler

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def roll(tmp_path, monkeypatch):
    """Apply five hosts, of which some fail; return their states and the batches that were begun and verified."""

    def run(bad, cut=None, domains=None, stop=KeyboardInterrupt, scheduler=None, **words):
        run.said, changed, verified = [], [], []

        def change(_rollout, changes, *, check):
            changed.append(tuple(changes))
            if cut == ("change", len(changed)):
                raise stop
            return {name: HostOutcome(state=bad.get(name, "done"), seconds=1.0) for name in changes}

        def verify(_rollout, outcomes, *, always=False):
            if cut == ("verify", len(verified) + 1):
                raise KeyboardInterrupt
            if outcomes:
                verified.append((tuple(outcomes), always))
            rollout.stopped = cut == ("record", len(verified))
            return outcomes

        def begins(_changes):
            if cut == "begins":
                raise KeyboardInterrupt

        monkeypatch.setattr(waves, "_change", change)
        monkeypatch.setattr(waves, "verify_hosts", verify)
        reach = SimpleNamespace(inventory="hosts.ini")
        session = SimpleNamespace(
            environment={"GPUSETUP_STATE": str(tmp_path)}, run=new_run(tmp_path), reach=reach, command="",
        )  # fmt: skip
        plans = {"x": HostPlan(state="unchanged")} | {name: HostPlan(state="change") for name in NAMES}
        stamp = SimpleNamespace(matrix=MatrixStamp(date="2026-01-01", digest="0"))
        facts = dict.fromkeys(plans, SimpleNamespace(processes=()))
        reporter = SimpleNamespace(say=run.said.append, begins=begins)
        rollout = SimpleNamespace(
            session=session, plans=plans, facts=facts, nodes={}, seconds={}, document=lambda: stamp, reporter=reporter,
            domains=domains or {}, stopped=False,
        )  # fmt: skip
        run.folder = session.run
        if scheduler is not None:
            work = Draining(rollout, scheduler, drain_seconds=1.0, busy_seconds=0.0)
            monkeypatch.setattr(waves, "draining", lambda *_words: work)
        applied = waves.carry_out(Applying(**words), rollout)
        return {name: outcome.state for name, outcome in applied.hosts.items()}, changed, verified

    run.home = tmp_path
    return run


LEFT = {"x": "unchanged"}


def all_of(names, state):
    return dict.fromkeys(names, state)


def kept(roll):
    """What the run's folder says of each host."""
    document = json.loads((roll.folder.path / "applied.json").read_bytes())
    return {name: host["state"] for name, host in document["hosts"].items()}


def why(roll, name):
    """What the run's folder says first about a host that was not started."""
    return json.loads((roll.folder.path / "applied.json").read_bytes())["hosts"][name]["warnings"][0]


def test_a_stop_while_the_last_batch_is_verified_forgets_nobody(roll):
    with pytest.raises(KeyboardInterrupt):
        roll({}, cut=("verify", 1))
    assert kept(roll) == LEFT | all_of(NAMES, "done")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, BadInputError("GS-407", "Ansible could not start")])
def test_nodes_that_an_early_end_leaves_drained_are_named(roll, stop):
    scheduler, told = Scheduler(c=Drained(ok=True, ours=False)), None
    with suppress(BadInputError):
        told, *_ = roll({"a": "failed"}, cut=("change", 2), stop=stop, scheduler=scheduler, batch="1,2", max_fail=1)
    still = "it is still drained: the run ended early; to return it to service: resume"
    assert roll.said[-2:] == [f"a: {still} a", f"b: {still} b"]
    states = LEFT | {"a": "failed"} | all_of("bc", "interrupted") | all_of("de", "not-started")
    assert (kept(roll), stopped_rollout(roll.home, "hosts.ini").hosts) == (states, NAMES)
    assert told in (states, None)
    logged = json.loads((roll.home / "audit.jsonl").read_bytes().splitlines()[-1])
    fared = {group["hosts"]: group["what"] for group in logged["groups"]}
    assert fared == {"a": "failed", "b,c": "interrupted at between two steps", "d,e": "not-started"}


def test_a_stop_while_nodes_are_given_back_names_them_and_keeps_what_was_done(roll):
    scheduler = Scheduler()
    scheduler.undrain = lambda _node: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        roll({}, scheduler=scheduler, verify="never", batch="1")
    assert (kept(roll)["a"], roll.said[-1].partition(":")[0]) == ("done", "a")


def test_a_stop_behind_a_batch_keeps_it_and_begins_no_other(roll):
    states, changed, verified = roll({}, cut=("record", 2), batch="1,2")
    assert changed == [("a",), ("b", "c")]
    assert verified[:2] == [(batch, True) for batch in changed], "each before the next begins"
    assert states == LEFT | all_of("abc", "done") | all_of("de", "not-started")
    assert why(roll, "e").startswith("the run was stopped before it")
    roll({"a": "failed", "b": "failed"}, batch="1", max_fail=1)
    assert why(roll, "e").startswith("2 hosts failed, more than --max-fail 1 allows")


@pytest.mark.parametrize(
    "data", [{"gpu_result": {"packages": 7}}, {"gpu_result": ["done"]}, {}]
)  # {}: any_errors_fatal
def test_an_answer_of_another_form_or_none_fails_its_host_alone(data):
    host = HostProgress("a", data={"gpu_state": data, "gpu_reboot": {"elapsed": "long"}})
    found = outcome_of(HostPlan(state="change"), host, 1.0)
    assert (found.state, found.reboot_seconds) == ("failed", 0.0)
    host.failure = Failure("Driver", "no module", document={"message": ["x"]})
    assert outcome_of(HostPlan(state="change"), host, 1.0).failure.message == "no module"


@pytest.mark.parametrize(
    ("reference", "changed", "state"), [("GS-452", 0, "refused"), ("GS-452", 2, "failed"), ("GS-456", 0, "failed")]
)
def test_a_host_that_refuses_before_its_first_change_has_not_failed(reference, changed, state):
    host = HostProgress("a", changed=changed, failure=Failure("Begin", "taken", document={"reference": reference}))
    found = outcome_of(HostPlan(state="change"), host, 1.0)
    assert (found.state, bool(stopped({"a": found}, 0))) == (state, state == "failed")
    removed = remove._outcome(HostRemoval(state="planned"), None, host, 1.0, interrupted=False)
    assert (removed.state, remove._exit_of(removed)) == (state, exit_of(found))


RACKS = {"a": "rack-1", "b": "rack-1", "c": "rack-1", "d": "rack-2"}


def test_a_domain_with_too_many_failures_is_left_alone_and_the_others_go_on(roll, tmp_path):
    states, changed, _ = roll({"a": "failed"}, domains=RACKS, batch="1", max_fail=5, max_fail_domain=0)
    assert changed == [("a",), ("d",), ("e",)]
    assert states == LEFT | {"a": "failed"} | all_of("bc", "not-started") | all_of("de", "done")
    assert why(roll, "b") == "1 host of rack-1 failed"
    assert stopped_rollout(tmp_path, "hosts.ini").hosts == ("a", "b", "c")
    states, _, _ = roll({"a": "failed", "d": "failed"}, domains=RACKS, batch="1", max_fail=5, max_fail_domain=1)
    assert [states[name] for name in NAMES] == ["failed", "done", "done", "failed", "done"], "within its budget"


@pytest.mark.parametrize("cut", ["begins", None])
def test_nothing_is_left_of_a_rollout_that_ended_well_or_before_its_first_batch(roll, cut):
    with pytest.raises(KeyboardInterrupt) if cut else nullcontext():
        roll({}, cut=cut, batch="1,50%")
    with pytest.raises(BadInputError, match="has stopped with hosts left to do"):
        stopped_rollout(roll.home, "hosts.ini")


STAMP = MatrixStamp(date="2026-11-26", digest="")


def ran(home, seconds, reboot, name="a", changed=3):
    host = HostProgress(name, changed=changed, seconds={"gpu_packages": seconds - reboot, "gpu_reboot": reboot})
    host.data = {"gpu_state": {"gpu_result": {}}} | ({"gpu_reboot": {"elapsed": reboot}} if reboot else {})
    hosts = {name: outcome_of(HostPlan(state="change", reboot=True), host, seconds)}
    new_run(home).write("applied.json", Applied(ok=True, run="", log="", seconds={}, matrix=STAMP, hosts=hosts))


def away(home, reboot=True):
    plans = {"a": HostPlan(state="change", reboot=reboot), "b": HostPlan(state="unchanged")}
    found = with_downtime(plans, home)
    assert found["b"] == plans["b"]
    return (took := found["a"].away).seconds, took.reboot_seconds, took.source, took.runs


def test_a_host_s_own_changes_count_before_the_fleet_s_and_those_before_the_bench(tmp_path):
    bench = Path(__file__).parents[3] / "bench/results/peers.json"
    first, _, stayed, *_ = json.loads(bench.read_bytes())["contenders"][0]["runs"]
    step = round(next(step["seconds"] for step in first["steps"] if step["name"] == "Reboot"), 1)
    ran(tmp_path, 5, 0, changed=0)
    for damaged in (b'{"hosts"', b'{"hosts": "\xff', b"[" * 99_999):
        (new_run(tmp_path).path / "applied.json").write_bytes(damaged)
    assert away(tmp_path) == (first["seconds"], step, "bench", 1)
    assert away(tmp_path, reboot=False) == (stayed["seconds"], 0, "bench", 1)
    ran(tmp_path, 900, 300, "z")
    ran(tmp_path, 50, 0, "z")
    assert (away(tmp_path), away(tmp_path, reboot=False)) == ((900, 300, "fleet", 1), (50, 0, "fleet", 1))
    for seconds, reboot in ((500, 200), (700, 240), (2000, 220)):
        ran(tmp_path, seconds, reboot)
    assert away(tmp_path) == (700, 220, "host", 3)


@pytest.mark.parametrize(
    ("kind", "reboot", "jobs", "said"),
    [("upgrade", False, 1, "at least 100 s, without a reboot (measured in a lab"), ("file", False, 0, "at least 100 s, without"),
     ("file", True, 1, "about 12 min, the reboot takes 4 min of it (from earlier")],
)  # fmt: skip
def test_a_plan_says_how_long_and_under_which_programs_the_driver_would_move(kind, reboot, jobs, said):
    users = (Process(pid=7, command="python3"), Process(pid=8, command="nvidia-persistenced"))
    took = Away(seconds=700 if reboot else 95.3, reboot_seconds=220, source="host" if reboot else "bench", runs=3)
    action = Action(id="x", kind=kind, what="x", why="x")
    plan = HostPlan(state="change", reboot=reboot, actions=(action,), away=took)
    work = (
        Work(scheduler="slurm", id="41", user="ada", name="fit", left="2:10:00"),
        Work(scheduler="kubernetes", id="ml/a"),
    )
    plan = replace(plan, jobs=jobs_of(users, plan), work=work[: 2 * jobs])
    assert plan.jobs == {user.pid: user.command for user in users[:jobs]}
    text = " ".join(plan_text(Plan(matrix=STAMP, hosts={"a": plan})).split())
    assert f"away {said}" in text
    assert ("jobs apply waits for what uses the GPU and stops none: python3" in text) == bool(jobs)
    runs = "runs job 41 of ada (fit, 2:10:00 left); pod ml/a: --drain slurm; --drain kubernetes waits for that"
    assert (f"{runs}, without it the reboot ends what does not use a GPU" if reboot else runs) in text or not jobs
    page = plan_html(Plan(matrix=STAMP, hosts={"a": plan}), datetime(2026, 11, 27, tzinfo=timezone.utc), {})
    assert ("<dt>runs</dt><dd>job 41 of ada (fit" in page, '"user":"ada"' in json_line(plan)) == (bool(jobs),) * 2


@pytest.fixture
def rollout(tmp_path):
    run = SimpleNamespace(path=tmp_path, id="1")
    return SimpleNamespace(
        session=SimpleNamespace(run=run), facts={"a": SimpleNamespace(state=None)}, plans={"a": HostPlan(state="change")},
        settings={"a": Settings()}, seconds={}, reporter=SimpleNamespace(watch=lambda _phase: nullcontext()),
    )  # fmt: skip


def test_a_person_who_stops_the_verification_keeps_the_report_of_what_was_done(rollout, monkeypatch):
    monkeypatch.setattr(verification, "run_playbook", Mock(side_effect=KeyboardInterrupt))
    done = HostOutcome(state="done", changed=7, seconds=30.0, packages={"installed": ["x"]}, history_id="h")
    outcomes = verification.verify_hosts(rollout, {"a": done, "b": HostOutcome(state="failed")})
    assert outcomes["b"].state == "failed"
    told = outcomes["a"]
    assert (told.state, told.changed, told.packages, told.history_id) == ("interrupted", 7, {"installed": ["x"]}, "h")
    assert exit_of(told) is Exit.INTERRUPTED
    applied = Applied(ok=False, run="1", log="l", seconds={}, matrix=MatrixStamp(date="", digest=""), hosts={"a": told})
    text = " ".join(applied_text(applied).split())
    assert "The changes before it stay; run the same command to verify them" in text
    assert "package transaction" not in text


KEPT = {"key": "k", "driver": "580", "verdict": "pass", "simulated": False, "time": "noon", "newer": 1}


NEW = msgspec.to_builtins(on_host.Verified(key="k", driver="580", verdict="warn", time="dusk"))


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (KEPT, "pass on noon"),
        (dict(KEPT, verdict="skip", simulated=True), "on noon, as far as a simulated GPU allows"),
        (NEW, "warn on dusk"),
        # What was not verified, or cannot be read, is measured again.
        (None, ""), ("yes", ""), (dict(KEPT, key="other"), ""), (dict(KEPT, driver="575"), ""), (dict(KEPT, verdict="fail"), ""),
        (dict(KEPT, verdict="skip"), ""), (dict(KEPT, verdict=7), ""), (dict(KEPT, time=None), ""),
    ],
)  # fmt: skip
def test_what_was_verified_is_not_measured_again(kept, said):
    loaded = SimpleNamespace(loaded=SimpleNamespace(version="580"))
    facts = SimpleNamespace(state=record({"verified": kept}), driver=loaded)
    plans = {"a": SimpleNamespace(lock=on_host.Applied(key="k"))}
    assert verification._on_record(SimpleNamespace(facts={"a": facts}, plans=plans), "a") == said


DRAFT = Draft(plan=HostPlan(state="change", reboot=True), stage="transaction")


def answered(told: Any) -> tuple[HostPlan, str, list[Any]]:
    """Return the plan, where the host left its lists, and what the planner was asked."""
    asked: list[Any] = []

    def third(draft: Draft, answer: Any) -> HostPlan:
        asked.append(answer)
        return draft.plan

    run: Any = SimpleNamespace(
        data=lambda _name, _action: told, track=SimpleNamespace(host=lambda _name: SimpleNamespace(failure=None))
    )
    session = SimpleNamespace(run=SimpleNamespace(log=Path("/x/log")))
    rollout: Any = SimpleNamespace(facts={"a": None}, fetched={}, session=session)
    planner: Any = SimpleNamespace(third=third)
    return _answered(rollout, planner, DRAFT, "a", run).plan, rollout.fetched["a"], asked


@pytest.mark.parametrize(("told", "named"), stored_rows("answers-of-another-form.json"))
def test_an_answer_of_another_form_names_the_field(told, named):
    plan, fetched, asked = answered(told)
    assert (plan.state, plan.refusals[0].reference, fetched, asked) == ("refused", "GS-409", "", [])
    assert (plan.reboot, plan.lock) == (False, on_host.NO_LOCK), "nothing happens to it"
    assert named in plan.refusals[0].message


def booted(facts: Any, boot: str | None, machine: str | None) -> Any:
    return msgspec.structs.replace(facts, boot=Boot(id=boot, time=1, machine=machine))


def test_two_names_of_one_machine_are_refused_and_copies_of_one_image_are_not():
    facts = machine("debian12-t4-open")
    hosts = {
        "gpu01": booted(facts, "b1", "m1"), "gpu01.example.org": booted(facts, "b1", "m1"),
        "a copy of its image": booted(facts, "b2", "m1"), "unknown": booted(facts, "b1", None),
        "unknown too": booted(facts, "b1", None),
    }  # fmt: skip
    refused = twins(hosts)
    assert set(refused) == {"gpu01", "gpu01.example.org"}
    assert refused["gpu01"].message == "gpu01, gpu01.example.org are the same machine"
    assert "--limit gpu01" in refused["gpu01"].hint
    many = twins({f"gpu{number}": booted(facts, "b1", "m1") for number in range(2000)})
    assert len(many["gpu7"].message) < 100
