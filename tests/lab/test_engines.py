"""A host over SSH by ansible-runner: first apply, second run, another driver, back; an unknown host key stays refused."""

import json

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import host_of, lock, stand_ins
from tests.lab.plays import packages

RUNNER = ("--engine", "runner")


@pytest.fixture
def lab_host(lab_hosts, lab_inventory, lab_repositories):
    (host,) = lab_hosts(flavour="ubuntu2404-like", machine="t4")
    return host, lab_inventory([host], stand_ins(lab_repositories))


@pytest.mark.slow
def test_a_hosts_life_by_ansible_runner(lab_host, tmp_path):
    host, inventory = lab_host
    first = apply(tmp_path, inventory, "--lock", lock(tmp_path, "570", "t4"), *RUNNER)
    assert (first.code, host_of(first)["state"]) == (0, "done"), first.out + first.err
    older = packages(host)
    again = apply(tmp_path, inventory, "--lock", tmp_path / "570.lock.json", *RUNNER)
    assert (again.code, host_of(again)["state"], host_of(again)["changed"]) == (0, "unchanged", 0), again.out
    by_ansible = apply(tmp_path, inventory, "--lock", tmp_path / "570.lock.json")
    assert (host_of(by_ansible)["state"], again.operations) == ("unchanged", by_ansible.operations)
    newer = apply(tmp_path, inventory, "--lock", lock(tmp_path, "580", "t4"), *RUNNER)
    assert newer.code == 0, newer.out + newer.err
    assert packages(host) != older
    back = gpusetup(tmp_path, "rollback", inventory, "--format", "json", *RUNNER)
    assert (back.code, packages(host)) == (0, older), back.out + back.err
    print(
        f"second run: runner {again.seconds:.1f} s, ansible {by_ansible.seconds:.1f} s, {again.operations} operations"
    )

    jobs = sorted((tmp_path / "state/runs").glob("*/runner/*/artifacts/1"))
    names = {job.parents[1].name[4:] for job in jobs}
    assert {"facts", "apply", "verify", "history"} <= names
    assert {(job / "status").read_text() for job in jobs} == {"successful"}
    assert {(job / "rc").read_text() for job in jobs} == {"0"}
    changed = [
        event["event_data"]["res"]["changed"]
        for job in jobs
        if job.parents[1].name.endswith("-apply")
        for event in map(_event, (job / "job_events").iterdir())
        if event["event"] == "runner_on_ok"
    ]
    assert True in changed


def test_a_host_whose_key_nobody_knows_is_refused_by_ansible_runner_too(lab_host, tmp_path):
    _host, inventory = lab_host
    known = tmp_path / "known"
    known.touch()
    lines = [line for line in inventory.read_text().splitlines() if "ssh_common_args" not in line]
    options = f"-o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null -o IdentitiesOnly=yes"
    inventory.write_text("\n".join([*lines, f"ansible_ssh_common_args={options}"]) + "\n")
    looked = gpusetup(tmp_path, "facts", inventory, "--format", "json", *RUNNER, timeout=120)
    assert looked.code == 6, looked.out + looked.err
    (failure,) = json.loads(looked.out)["failures"].values()
    assert "Host key verification failed" in failure["message"]
    assert known.stat().st_size == 0, "nobody trusted it"


def _event(path):
    return json.loads(path.read_text())
