"""Nodes taken out of work and given back: scontrol answers as a real one was seen to, kubectl is a stand-in by its manual."""

import json
import stat

import pytest

from gpusetup.drive import schedulers
from gpusetup.drive.schedulers import Caller, Command, Kubernetes, SchedulerError, Slurm
from gpusetup.errors import BadInputError
from tests.refusals import refused
from tests.stored import stored

RESERVATION = (
    "ReservationName={name} StartTime=2026-11-22T03:10:01 EndTime=2026-11-22T03:15:01 Duration=00:05:00 Nodes=n[1-2] NodeCnt=2 "
    "CoreCnt=1 Features=(null) PartitionName=(null) Flags={flags} TRES=cpu=1 Users=root Groups=(null) State={state} Watts=n/a\n"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(schedulers, "_POLL_SECONDS", 0.01)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write a program on PATH; what it was called with is kept."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def updates():
        return [call for call in write.calls() if "update" in call]

    def write(name, body):
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/calls\ncd {tmp_path}\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    write.calls = lambda: (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
    write.folder, write.updates = tmp_path, updates
    return write


@pytest.fixture
def slurm(program):
    """A node whose jobs end after some looks."""

    def cluster(state="IDLE", reason="", looks=0, reservations="No reservations in the system\n"):
        (program.folder / "state").write_text(state)
        (program.folder / "reason").write_text(reason)
        (program.folder / "looks").write_text(str(looks))
        (program.folder / "reservations").write_text(reservations)
        program("scontrol", stored("scontrol.sh.txt"))
        program("squeue", "echo 41")
        return Slurm(call=Caller())

    return cluster


def test_a_job_is_waited_for_and_the_node_given_back(slurm, program):
    cluster = slurm("ALLOCATED", looks=3)
    assert cluster.drain("n1", 30) == schedulers.Drained(ok=True, ours=True)
    assert cluster.drained_by_us("n1")
    assert cluster.undrain("n1") == ""
    assert not cluster.drained_by_us("n1")
    update = "scontrol update NodeName=n1 State="
    assert program.updates() == [f"{update}DRAIN Reason=gpusetup", f"{update}RESUME"]


def test_a_reservation_is_respected(slurm, program):
    cluster = slurm(reservations=RESERVATION.format(name="mine", flags="SPEC_NODES", state="ACTIVE"))
    assert cluster.drain("n1", 5).why == "reserved: mine"
    assert program.updates() == []


@pytest.mark.parametrize("reason", ["bad fan", "gpusetup failed here: RMA", "gpusetup-health: gpu.ecc"])
def test_what_somebody_else_drained_stays_drained(slurm, program, reason):
    cluster = slurm("IDLE+DRAIN", reason)
    drained = cluster.drain("n1", 5)
    assert (drained.ok, drained.ours, drained.why) == (True, False, f"drained by someone else: {reason}")
    assert cluster.undrain("n1") == f"someone else drained it meanwhile: {reason}"
    assert program.updates() == []


@pytest.mark.parametrize("reason", ["gpusetup", "gpusetup : reboot issued"])
def test_an_earlier_run_that_was_cut_left_it_drained(slurm, reason):
    cluster = slurm("IDLE+DRAIN", reason)
    assert cluster.drain("n1", 5) == schedulers.Drained(ok=True, ours=True)
    still = slurm("ALLOCATED+DRAIN", "gpusetup", looks=10**6).drain("n1", 0)
    assert still == schedulers.Drained(ok=False, ours=True, why="jobs run: 41")


def test_a_scheduler_that_fails_while_jobs_are_waited_for_has_the_node_back(slurm, program):
    cluster = slurm("ALLOCATED", looks=10**6)
    program("squeue", "exit 1")
    with pytest.raises(SchedulerError, match="squeue"):
        cluster.drain("n1", 5)
    assert not cluster.drained_by_us("n1")
    for squeue in ("mv scontrol gone; exit 1", "mv scontrol gone; echo 41"):
        cluster = slurm("ALLOCATED", looks=10**6)
        program("squeue", squeue)
        with refused(SchedulerError, note="may still be drained", hint="State=RESUME"):
            cluster.drain("n1", 0)


@pytest.mark.parametrize("name", ["", "-x", "a b", "$(id)", "a;b", "n1\n", "../n"])
def test_a_node_is_a_name_and_nothing_else(name):
    with pytest.raises(BadInputError):
        schedulers.check_node(name)


def test_any_command(program):
    program("take", '[ "$1" = busy ] && { echo "a job runs" >&2; exit 75; }; [ "$1" = bad ] && exit 3; exit 0')
    program("give", "exit 0")
    command = Command(take=("take", "{node}"), give=("give", "--node={node}"))
    assert Command(take=(), give=("give", "back now", "{node}")).by_hand("n1") == "give 'back now' n1"
    assert command.drain("n1", 5).ok
    assert command.drain("busy", 5).why == "a job runs"
    with pytest.raises(SchedulerError, match="exit 3"):
        command.drain("bad", 5)
    assert command.undrain("n1") == ""
    assert program.calls()[-1] == "give --node=n1"
    program("take", "sleep 5")
    assert command.drain("n1", 0.3).why.endswith("still running after 0 s")
    assert program.calls()[-1] == "give --node=n1"
    program("give", "echo no >&2; exit 1")
    assert "it may be drained: no" in command.drain("n1", 0.3).why
    assert "it may be drained: no --undrain" in Command(take=("take", "{node}")).drain("n1", 0.3).why


POD = {
    "metadata": {"namespace": "ml", "name": "train"},
    "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}, "status": {"phase": "Running"},
}  # fmt: skip


MANAGED = [{"manager": "gpusetup", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
OURS = {"metadata": {"managedFields": MANAGED}, "spec": {"unschedulable": True}}


@pytest.fixture
def kubernetes(program):
    """A stand-in for kubectl, its answers written by hand: one node, one pod that ends after some looks."""

    def cluster(*, looks=0, cordoned=False, ours=False, drain="exit 0"):
        (program.folder / "free").write_text(json.dumps({"metadata": {}, "spec": {}}))
        (program.folder / "ours").write_text(json.dumps(OURS))
        node = OURS if ours else {"metadata": {}, "spec": {"unschedulable": cordoned}}
        (program.folder / "node").write_text(json.dumps(node))
        (program.folder / "pods").write_text(json.dumps({"items": [POD]}))
        (program.folder / "looks").write_text(str(looks))
        program(
            "kubectl",
            f"""
case "$1 $2" in
  "get --raw") cat node ;;
  "patch node") cp ours node ;;
  "uncordon n1") cp free node ;;
  "get pods") looks=$(cat looks); [ "$looks" -gt 0 ] && {{ echo $((looks - 1)) >looks; cat pods; }} || echo '{{"items": []}}' ;;
  "drain n1") {drain} ;;
esac""",
        )
        return Kubernetes(call=Caller())

    return cluster


def verbs(program):
    return [call.split()[1] for call in program.calls()]


def test_kubernetes_gives_back_what_does_not_become_free(kubernetes, program):
    assert kubernetes(looks=10**6).drain("n1", 0.2).why == "pods with a GPU run: ml/train"
    assert not any(call.startswith("kubectl drain") for call in program.calls())
    refused = kubernetes(drain="echo 'Cannot evict pod: disruption budget' >&2; exit 1").drain("n1", 5)
    assert (refused.ok, refused.why) == (False, "Cannot evict pod: disruption budget")
    assert verbs(program).count("uncordon") == 2
    program("kubectl", 'case "$1" in get) cat node ;; patch) cp ours node; exit 1 ;; esac')
    with pytest.raises(SchedulerError):
        Kubernetes(call=Caller()).drain("n1", 5)
    assert verbs(program).count("uncordon") == 3, "its answer may be lost, not its effect"


def test_kubernetes_leaves_what_somebody_else_cordoned(kubernetes):
    drained = kubernetes(cordoned=True).drain("n1", 5)
    assert (drained.ok, drained.ours) == (True, False)
    assert kubernetes(ours=True).drain("n1", 5).ours


def test_kubernetes_leaves_a_node_that_somebody_uncordoned_and_cordoned_again(kubernetes, program):
    cluster = kubernetes()
    assert cluster.drain("n1", 5).ours
    assert cluster.drained_by_us("n1")
    theirs = {"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    (program.folder / "node").write_text(json.dumps(OURS | {"metadata": {"managedFields": [theirs]}}))
    assert (cluster.drained_by_us("n1"), cluster.undrain("n1")) == (False, "someone else cordoned it meanwhile")
    assert "uncordon" not in verbs(program)


def test_a_shell_behind_ssh_reads_each_word_as_it_is(program):
    program("ssh", "shift; eval \"printf '%s.' $*\"")
    assert Caller(prefix=("ssh", "head"))("kubectl", '--patch={"a b":1}').out.strip() == 'kubectl.--patch={"a b":1}.'
