"""A job holds each node that changes: Slurm's programs are stand-ins that answer as those of Debian 12 (22.05.8) were seen to."""

import stat
from types import SimpleNamespace

import pytest

from gpusetup.drive import schedulers
from gpusetup.drive import slurm as slurm_module
from gpusetup.drive.engines import engine_of
from gpusetup.drive.schedulers import Caller, SchedulerError
from gpusetup.errors import BadInputError
from gpusetup.rollout import draining as draining_module
from gpusetup.rollout import draining as holding
from gpusetup.rollout.options import Freeing

SCONTROL = """
case "$*" in
  *"show node"*)
    printf '%s' "NodeName=n1 Gres=gpu:1 Version=22.05.8 State=$(cat state) ThreadsPerCore=1 ExtSensorsTemp=n/s"
    [ -s reason ] && echo " Reason=$(cat reason) [root@2026-11-24T14:30:55]" || echo ;;
  *"show reservation"*) echo "No reservations in the system" ;;
  *"show config"*) cat config ;;
  *State=DRAIN*) echo "$(cat state)+DRAIN" >state; echo "${4#Reason=}" >reason ;;
  *State=RESUME*) echo IDLE >state; : >reason ;;
  *) exit 1 ;;
esac"""
SQUEUE = """
[ -e job ] || exit 0
case "$*" in
  *--format=%T/%r*) echo "$(cat job)/$(cat why)" ;;
  *--format=%i/%n/%k*) case $(cat job) in CANCELLED|COMPLETED) ;; *) echo "12/n1/$(cat comment)";; esac ;;
  *--format=%i/%T*) echo "12/$(cat job)" ;;
  *--nodelist*) echo 12; cat others ;;
  *--states=*$(cat job)*) echo 12 ;;
esac"""
SBATCH = """
cat >script
[ -s refuses ] && { cat refuses >&2; exit 1; }
echo "$*" | sed 's/.*--comment=\\([^ ]*\\).*/\\1/' >comment
cat begins >job
case $(cat job) in RUNNING) echo ALLOCATED >state ;; esac
echo 12"""
SCANCEL = """
case "$*" in *USR2*) echo COMPLETED >job ;; *) echo CANCELLED >job ;; esac
sed -i 's/ALLOCATED/IDLE/' state"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(schedulers, "_POLL_SECONDS", 0.01)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A cluster of one node as files: its state, the job's, why it waits, and what was called."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, text in {
        "state": "IDLE", "reason": "", "why": "None", "others": "", "refuses": "", "begins": "RUNNING", "comment": "",
        "config": "RebootProgram           = /sbin/reboot\n", "partitions": "all*/up\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    programs = {"scontrol": SCONTROL, "squeue": SQUEUE, "sbatch": SBATCH, "scancel": SCANCEL, "sinfo": "cat partitions"}
    for name, body in programs.items():
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\ncd {tmp_path}\necho "{name} $*" >>calls\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def held(*options):
    return engine_of("slurm", options).holder(Caller(), "run-1")


def calls(folder, *words):
    return [line for line in (folder / "calls").read_text().splitlines() if line.startswith(words)]


def test_a_job_takes_the_node_which_is_drained_under_it_and_given_back(slurm):
    jobs = held("partition=gpu", "account=ops", "time=2:00:00")
    (slurm / "partitions").write_text("gpu/up\n")
    assert jobs.drain("n1", 30) == schedulers.Drained(ok=True, ours=True)
    assert (slurm / "state").read_text() == "ALLOCATED+DRAIN\n"
    (submitted,) = calls(slurm, "sbatch")
    for word in ("--exclusive", "--nodelist=n1", "--partition=gpu", "--account=ops", "--time=2:00:00", "--export=NIL"):
        assert word in submitted.split()
    assert (slurm / "script").read_bytes() == slurm_module.HOLD
    assert jobs.lost() == {}
    assert jobs.undrain("n1") == ""
    assert (slurm / "job").read_text() == "COMPLETED\n"
    assert calls(slurm, "scancel") == ["scancel --batch --signal=USR2 12"]
    assert (slurm / "state").read_text() == "IDLE\n"
    jobs.let_go()
    assert len(calls(slurm, "scancel")) == 1, "a job is ended once"


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("PartitionTimeLimit", "the partition does not take it"),
        ("JobHeldAdmin", "someone held it"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "no job"),
        ("InvalidAccount", "account"),
    ],
)
def test_a_job_that_will_never_start_is_an_error_and_is_gone(slurm, why, told):
    (slurm / "begins").write_text("PENDING")
    (slurm / "why").write_text(why)
    with pytest.raises(SchedulerError, match="cannot start") as caught:
        held().drain("n1", 30)
    assert told in caught.value.message
    assert caught.value.reference == "GS-819"
    assert caught.value.hint
    assert (slurm / "job").read_text() == "CANCELLED\n"
    assert (slurm / "state").read_text() == "IDLE"


def test_what_sbatch_refuses_is_passed_on(slurm):
    (slurm / "refuses").write_text("sbatch: error: Batch job submission failed: Requested reservation is invalid\n")
    with pytest.raises(SchedulerError, match="Requested reservation is invalid") as caught:
        held("reservation=gone").drain("n1", 5)
    assert "--engine-option" in caught.value.hint


@pytest.mark.parametrize(("partitions", "told"), [("all*/down\n", "all is down"), ("all*/drain\n", "all is drain")])
def test_a_partition_that_starts_nothing_is_told_before_a_job_is_sent(slurm, partitions, told):
    (slurm / "partitions").write_text(partitions)
    with pytest.raises(SchedulerError, match=told):
        held().drain("n1", 5)
    assert not calls(slurm, "sbatch")


def test_a_node_that_is_down_is_refused(slurm):
    (slurm / "state").write_text("DOWN*")
    (slurm / "reason").write_text("burnt")
    with pytest.raises(SchedulerError, match="burnt") as caught:
        held().drain("n1", 5)
    assert caught.value.reference == "GS-817"


def test_a_node_that_stays_busy_keeps_its_work_and_no_job_waits(slurm):
    (slurm / "begins").write_text("PENDING")
    (slurm / "why").write_text("Resources")
    drained = held().drain("n1", 0.1)
    assert (drained.ok, "its job 12 waits (Resources)" in drained.why) == (False, True)
    assert (slurm / "job").read_text() == "CANCELLED\n"
    assert not calls(slurm, "scontrol update")


def test_a_job_that_somebody_cancels_in_the_queue_leaves_the_node_as_it_is(slurm):
    (slurm / "begins").write_text("CANCELLED")
    drained = held().drain("n1", 5)
    assert (drained.ok, drained.why) == (False, "its job 12 has ended in the queue: cancelled")
    assert not calls(slurm, "scontrol update")


def test_what_an_earlier_run_left_is_taken_over(slurm):
    (slurm / "state").write_text("ALLOCATED+DRAIN")
    (slurm / "reason").write_text("gpusetup")
    (slurm / "job").write_text("RUNNING\n")
    (slurm / "comment").write_text(f"gpusetup:{slurm_module._here()}:run-0\n")
    jobs = held()
    assert jobs.drain("n1", 5) == schedulers.Drained(ok=True, ours=True)
    assert not calls(slurm, "sbatch")
    assert jobs.jobs == {"n1": "12"}


def test_what_another_controller_holds_is_left_to_it(slurm):
    (slurm / "job").write_text("RUNNING\n")
    (slurm / "comment").write_text("gpusetup:desk:run-0\n")
    jobs = held()
    assert jobs.drain("n1", 5) == schedulers.Drained(ok=False, why="gpusetup on desk holds it with job 12")
    jobs.let_go()
    assert not calls(slurm, "scancel")


def test_what_somebody_else_drained_has_no_job_and_stays_drained_over_a_reboot(slurm):
    (slurm / "state").write_text("IDLE+DRAIN")
    (slurm / "reason").write_text("bad fan")
    jobs = held()
    assert jobs.drain("n1", 5) == schedulers.Drained(ok=True, why="drained by someone else: bad fan")
    assert jobs.reboot("n1") == schedulers.Reboot(command="scontrol reboot n1")
    assert not calls(slurm, "sbatch")


def test_a_node_gives_up_its_job_and_comes_back_out_of_work(slurm):
    jobs = held()
    jobs.drain("n1", 5)
    how = jobs.reboot("n1")
    assert how.release == ("scancel", "--batch", "--signal=USR2", "12")
    assert how.command == "scontrol reboot ASAP nextstate=DOWN reason=gpusetup n1"
    assert "nextstate=RESUME" in held("nextstate=resume").reboot("n1").command
    (slurm / "state").write_text("DOWN")
    (slurm / "reason").write_text("gpusetup : reboot issued : reboot complete")
    assert jobs.drained_by_us("n1")
    assert jobs.undrain("n1") == ""
    assert (slurm / "state").read_text() == "IDLE\n"
    assert jobs.cannot_reboot() is None
    (slurm / "config").write_text("RebootProgram           = (null)\n")
    assert jobs.cannot_reboot().reference == "GS-818"


def test_a_cancelled_job_stops_the_run_and_one_whose_time_is_over_does_not(slurm, monkeypatch):
    jobs = held()
    jobs.drain("n1", 5)
    said, stops = [], []
    monkeypatch.setattr(holding, "_EVERY", 0.01)
    monkeypatch.setattr(holding.os, "kill", lambda _pid, number: stops.append(number))
    for state, words in (("TIMEOUT", "the node stays drained"), ("CANCELLED", "stopping")):
        (slurm / "job").write_text(state)
        said.clear()
        with holding.watched(jobs, said.append):
            for _ in range(500):
                if said and (state == "TIMEOUT" or stops):
                    break
                holding.threading.Event().wait(0.01)
        assert said == [f"n1: its job has ended ({state.lower()}): {said[0].rpartition(': ')[2]}"]
        assert words in said[0]
        assert len(stops) == (state == "CANCELLED")


@pytest.mark.parametrize("option", ["partition=a b", "account=$(id)", "time=-1", "nextstate=up", "qos=a;b"])
def test_a_setting_that_is_no_word_is_refused(option):
    with pytest.raises(BadInputError) as caught:
        engine_of("slurm", [option])
    assert caught.value.reference == "GS-821"


def test_without_slurms_commands_it_says_how_to_reach_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInputError, match="not on this machine") as caught:
        held()
    assert "--drain-via" in caught.value.hint


def test_two_ways_to_free_a_node_are_one_too_many(slurm):
    session = SimpleNamespace(engine=engine_of("slurm"), run=SimpleNamespace(id="run-1"))
    rollout = SimpleNamespace(session=session)
    with pytest.raises(BadInputError) as caught:
        draining_module.draining(Freeing(drain="kubernetes"), rollout)
    assert caught.value.reference == "GS-822"
    work = draining_module.draining(Freeing(drain="slurm"), rollout)
    assert work.scheduler is work.holder
