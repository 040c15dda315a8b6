"""The exported project under real ansible-runner, as AWX runs it, over hosts that are answers (`tests.simulated_fleet`)."""

import json

import pytest

from gpusetup.cli.main import main
from tests.drive.awx_job import inventory_script, run_job
from tests.simulated_fleet import SimulatedFleet

BAD = "gpu-00003"


@pytest.fixture
def fleet(tmp_path):
    fleet = SimulatedFleet(tmp_path / "fleet", 6, kinds=("ubuntu24.04-h200-keep",))
    fleet.answer("gpu_state", {"converged": False, "gpu_result": {"state": "done"}})
    return fleet


@pytest.fixture
def hosts(tmp_path, fleet):
    """Let the job's inventory be these hosts."""
    variables = {
        "ansible_python_interpreter": "/usr/bin/python3", "ansible_ssh_executable": str(fleet.folder / "ssh"), "gpusetup_become": False,
    }  # fmt: skip
    return lambda names: inventory_script(tmp_path / "job/inventory/hosts", names, variables)


@pytest.fixture
def run(tmp_path, fleet, hosts):
    assert main(["export", "handover", "awx", "--out", str(tmp_path / "handover")]) == 0
    hosts(fleet.names)

    def run(playbook, **how):
        return run_job(tmp_path / "job", tmp_path / "handover/project", playbook, **how)

    return run


def calls(fleet, name):
    path = fleet.folder / "calls" / name
    return path.read_text().split() if path.exists() else []


def test_each_host_has_a_result_of_its_own_and_the_job_its_artifacts(run, fleet):
    fleet.break_every(4, ["refused"])
    job = run("facts.yml", number=17)
    assert job.status == "failed"
    assert job.hosts() == {name: "failed" if name == BAD else "ok" for name in fleet.names}
    assert job.told()[BAD].startswith("unreachable: cannot be reached")
    told = job.artifacts["gpu_facts_17"]
    assert {name: host["state"] for name, host in told.items()} == {
        name: "unreachable" if name == BAD else "seen" for name in fleet.names
    }
    assert "H200" in told["gpu-00000"]["message"]


def test_a_workflow_applies_the_plan_that_people_said_yes_to_and_nothing_else(run, fleet):
    fleet.break_every(4, ["refused"])
    said = {"gpusetup_components": "driver, cupy", "gpusetup_torch": ""}
    planned = run("plan.yml", number=20, answers=said)
    assert planned.hosts() == {name: "failed" if name == BAD else "ok" for name in fleet.names}
    plan = planned.artifacts["gpu_planned_20"]
    assert sorted(plan["hosts"]) == [name for name in fleet.names if name != BAD]
    assert len(plan["plans"]) == 1, "hosts of one kind share one plan"
    stack = plan["plans"][0]["stack"]
    assert (stack["driver"]["installed"], "torch" in stack) == (True, False)

    fleet.mend()
    asked = len(calls(fleet, BAD))
    handed = said | planned.artifacts
    applied = run("apply_planned.yml", number=21, answers={**handed, "gpu_batch": "2", "gpu_max_fail": 9})
    assert len(calls(fleet, BAD)) == asked, "a host without a plan is not spoken to"
    assert set(applied.artifacts) == {"gpu_apply_21"}
    assert applied.told()[BAD].startswith("unreachable: ")
    assert {name: host["state"] for name, host in applied.artifacts["gpu_apply_21"].items()} == dict.fromkeys(
        plan["hosts"], "verify-failed"
    ), "nothing verifies where every answer is canned"
    assert "batch 1 of 3: 2 hosts" in applied.stdout, "what gpusetup says of its progress is the job's output"

    handed |= applied.artifacts
    fleet.answer("gpu_state", {"current": "b", "history": []})
    back = run("rollback.yml", number=22, answers=handed)
    assert set(back.artifacts["gpu_rollback_22"]) == set(plan["hosts"]), "who was not changed is left alone"
    assert "no earlier verified state" in back.told()["gpu-00000"]
    assert back.told()[BAD].startswith("unreachable: ")

    counted = {name: len(calls(fleet, name)) for name in fleet.names}
    verdict = run("verdict.yml", number=23, answers=handed | back.artifacts)
    assert verdict.hosts() == dict.fromkeys(fleet.names, "failed")
    assert {name: len(calls(fleet, name)) for name in fleet.names} == counted


def test_without_a_plan_nothing_is_applied(run, fleet):
    job = run("apply_planned.yml", number=5)
    assert job.status == "failed"
    assert "no plan reached this job" in job.stdout
    assert [calls(fleet, name) for name in fleet.names] == [[]] * 6


def test_other_wishes_than_those_of_the_plan_are_refused(run):
    planned = run("plan.yml", number=40)
    job = run("apply_planned.yml", number=41, answers=planned.artifacts | {"gpusetup_components": "driver, cupy"})
    assert {line.partition(":")[0] for line in job.told().values()} == {"refused"}
    assert "has changed since the plan was made" in job.told()["gpu-00000"]


def test_slices_hand_on_one_plan(run, fleet, hosts):
    parts = {}
    for number, names in ((31, fleet.names[:3]), (32, fleet.names[3:])):
        hosts(names)
        parts |= run("plan.yml", number=number).artifacts
    assert {"gpu_planned_31", "gpu_planned_32"} < set(parts)
    applied = run("apply_planned.yml", number=33, answers=parts)
    assert set(applied.hosts()) == set(fleet.names[3:])
    assert set(applied.artifacts["gpu_apply_33"]) == set(fleet.names[3:])


def test_the_limit_and_the_become_password_of_the_job_reach_the_hosts_and_no_file(run, fleet, tmp_path):
    password = "s3cret-77aa"
    job = run(
        "facts.yml", number=8, cmdline="-u root --limit gpu-00001 --become --ask-become-pass",
        passwords={"^BECOME password: ?$": password},
    )  # fmt: skip
    assert job.hosts() == {"gpu-00001": "ok"}
    assert [name for name in fleet.names if calls(fleet, name)] == ["gpu-00001"]
    written = [path for path in (tmp_path / "job").rglob("*") if path.is_file() and path.name != "passwords"]
    assert len(written) > 8
    assert [path.name for path in written if password in path.read_text(errors="replace")] == []


def test_host_keys_are_checked_though_ansible_runner_would_not(run, fleet, tmp_path):
    ssh = fleet.folder / "ssh"
    ssh.write_text(
        ssh.read_text().replace("#!/bin/sh", f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> {tmp_path}/ssh-called", 1)
    )
    (tmp_path / "handover/project/known_hosts").write_text("@cert-authority * ssh-ed25519 AAAA\n")
    assert run("facts.yml", number=3).status == "successful"
    called = (tmp_path / "ssh-called").read_text()
    assert "StrictHostKeyChecking=no" not in called
    assert "/known_hosts" in called.split("GlobalKnownHostsFile=", 1)[1].split("-o")[0]
    assert json.loads((tmp_path / "job/env/envvars").read_text()).get("ANSIBLE_HOST_KEY_CHECKING") is None
