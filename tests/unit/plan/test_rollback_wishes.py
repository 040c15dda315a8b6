"""Which apply a host goes back to: rollback notices any wish that differs, and asks for what was asked for then."""

from argparse import Namespace

import pytest

from gpusetup.cli.rollback import _target, past_of
from gpusetup.drive.events import Failure, Track
from gpusetup.drive.playbook import PlaybookRun
from gpusetup.drive.runner import Finished
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.applied import Verified
from gpusetup.model.facts import Containers, Service
from gpusetup.model.lifecycle import Past
from gpusetup.model.request import Requirement
from gpusetup.model.settings import Settings
from gpusetup.plan.lifecycle import choose
from tests.hosts.machines import changed
from tests.records import lock_of, record
from tests.refusals import refused
from tests.unit.plan.conftest import answer, drafted, host, nvidia_ubuntu, planner

TWO_CUDAS = (Requirement(component="cuda", specifier="==12.8.*", beside=("==13.0.*",)),)


@pytest.mark.parametrize(
    "then",
    [
        {"containers": ("docker",)}, {"requirements": TWO_CUDAS}, {"driver_options": {"NVreg_EnableGpuFirmware": 0}},
        {"hold_kernel": True}, {"persistence": False}, {"monitoring": "textfile"}, {"module": "dkms"}, {"dev": True},
    ],
    ids=lambda then: next(iter(then)),
)  # fmt: skip
def test_roles_are_told_what_they_were_told_then(then):
    facts = host("ubuntu24.04-rtx4090-open", driver=None, containers=Containers(runtimes=("docker",)))
    more = (*planner.matrix.repos.container_toolkit.packages, "prometheus-node-exporter")
    offered = changed(
        nvidia_ubuntu,
        candidates=nvidia_ubuntu.candidates | answer([], *((name, "1.20.0-1") for name in more)).candidates,
    )
    driver = (Requirement(component="driver"), Requirement(component="cuda"))

    def planned(**more):
        settings = Settings(**{"requirements": driver, **more})
        plan = drafted(planner, facts, settings, offered).plan
        assert plan.state == "change", plan.refusals
        return plan

    first, second = planned(**then), planned()
    assert first.variables != second.variables
    for plan, today in ((first, Settings(requirements=driver)), (second, Settings(**then))):
        again = planner.recorded(facts, today, plan.lock).plan
        assert again.variables == plan.variables


def test_a_licence_comes_back_with_the_same_token_alone():
    service = Service(unit="nvidia-gridd.service", active="active", enabled="enabled")
    facts = host("ubuntu24.04-h200-keep", services={"gridd": service})
    there = Settings(requirements=(Requirement(component="driver"),), vgpu_token="/a.tok", vgpu_token_sha256="ab" * 32)
    lock = planner.first(facts, there).plan.lock
    moved = changed(there, vgpu_token="/now.tok")
    assert planner.recorded(facts, moved, lock).plan.variables.gpu_licence_token == "/now.tok"
    with refused(PreflightError, "GS-816", match="another token"):
        planner.recorded(facts, changed(moved, vgpu_token_sha256="cd" * 32), lock)

    name = "/etc/nvidia/ClientConfigToken/client_configuration_token_gpusetup.tok"
    licensed = changed(facts, state=record({"schema": "gpusetup/record/1", "files": {name: {"sha256": "ab"}}}))
    plan = planner.first(licensed, Settings(requirements=there.requirements)).plan
    assert plan.variables.gpu_licence_give_up is True
    assert [action.what for action in plan.actions] == ["no longer license the vGPU"]


def old(identity, version="580", verdict="pass"):
    lock, verified = lock_of(driver=version), Verified(verdict=verdict)
    return Past(id=identity, lock=lock, packages={"nvidia": version}, verified=verified)


def test_the_last_that_verified_and_is_another_one():
    history = (old("a1", "570"), old("a2", "575", "fail"), old("a3", "580"), old("a4", "580"))
    assert choose(history, "a4").id == "a1"
    assert choose((*history, old("a5", "590", "fail")), "a5").id == "a4", (
        "the last good one before an apply that failed"
    )
    with refused(PreflightError, "GS-802"):
        choose((old("a1", "570", "skip"), old("a2")), "a2")
    assert choose(history[:3], "").id == "a3"
    assert choose((*history[:3], old("a4", "580", None)), "a4").id == "a3"


def test_by_id_or_its_beginning():
    history = (old("20261120T1", "570", "fail"), old("20261121T2"))
    assert choose(history, "20261121T2", "20261120").lock == lock_of(driver="570")
    for unclear in ("2026112", "nonsense"):
        with refused(BadInputError, "GS-803"):
            choose(history, "", unclear)


def test_a_history_of_another_form_names_the_field_and_newer_fields_are_left_alone():
    told = {"id": "a1", "finished": "", "lock": {}, "verified": {"verdict": "pass", "newer": [1]}, "also": "newer"}
    current, (read,) = past_of({"current": "a1", "history": [told]}, "gpu07")
    assert (current, read.verified) == ("a1", Verified(verdict="pass"))
    with refused(BadInputError, "GS-805", match=r"history of gpu07 .*\$\[0\]\.verified\.verdict"):
        past_of({"history": [dict(told, verified={"verdict": 7})]}, "gpu07")


def test_a_history_that_could_not_be_read_is_the_reason_and_not_an_empty_one():
    track = Track()
    said = {
        "reference": "GS-499",
        "message": "the record cannot be read",
        "context": "/x/state.json",
        "hint": "a backup",
    }
    track.host("a").failure = Failure("Applies on record", "GS-499: do", document=said)
    with refused(PreflightError, "GS-499", "cannot be read; /x/state.json", hint="a backup"):
        _target(
            PlaybookRun("history", Finished((), 0, "", "", 0.0), track), "a", Namespace(inventory="hosts.ini", to="")
        )
