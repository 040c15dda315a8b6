"""A real host's life by the jobs of `gpusetup export handover awx` under real ansible-runner, as AWX runs them.

The key is in ssh-agent alone, the user on the command line, host keys in the project. AWX itself is not here.
"""

import pytest

from gpusetup.cli.main import main
from tests.drive.awx_job import inventory_script, run_job
from tests.lab.lifecycle import stand_ins
from tests.lab.places import SIMULATED_ROOT, SSH_KEY
from tests.lab.plays import packages


def jobs(folder, host, variables):
    """Return what runs a job of the exported project, as AWX would: numbered, and handed what came before it."""
    assert main(["export", "handover", "awx", "--out", str(folder / "handover")]) == 0
    project = folder / "handover/project"
    # Who runs the tests has known hosts of his own; an execution environment has none.
    reach = {"ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null"} | {"ansible_host": host.address, "ansible_python_interpreter": "/usr/bin/python3", "gpusetup_simulated_root": SIMULATED_ROOT}  # fmt: skip
    inventory_script(folder / "job/inventory/hosts", [host.name], reach | variables)
    (folder / "job/env").mkdir()
    (folder / "job/env/ssh_key").write_text(SSH_KEY.read_text())
    numbers = iter(range(100, 200))

    def run(playbook, **answers):
        return run_job(
            folder / "job", project, f"{playbook}.yml", number=next(numbers), answers=answers, cmdline="-u root"
        )

    return run, project


@pytest.mark.slow
def test_a_hosts_life_by_jobs_of_awx(lab_hosts, lab_repositories, tmp_path):
    (host,) = lab_hosts(flavour="ubuntu2404-like", machine="t4")
    run, project = jobs(tmp_path, host, stand_ins(lab_repositories))
    unknown = run("facts")
    assert unknown.hosts() == {host.name: "failed"}
    assert "Host key verification failed" in unknown.told()[host.name]

    (project / "known_hosts").write_text((SSH_KEY.parent / "known_hosts").read_text())
    looked = run("facts")
    assert looked.hosts() == {host.name: "ok"}, looked.stdout
    assert "T4" in looked.told()[host.name]

    older = {"gpusetup_driver": "570.*"}
    before = packages(host)
    planned = run("plan", **older)
    assert packages(host) == before
    assert planned.hosts() == {host.name: "ok"}, planned.stdout
    applied = run("apply_planned", **older, **planned.artifacts)
    assert applied.hosts() == {host.name: "changed"}, applied.stdout
    assert applied.told()[host.name].startswith("done: ")
    assert "570." in applied.stdout
    with_570 = packages(host)
    verified = run("verify", **older, **planned.artifacts, **applied.artifacts)
    assert verified.hosts() == {host.name: "ok"}, verified.stdout
    verdict = run("verdict", **applied.artifacts, **verified.artifacts)
    assert (verdict.status, verdict.hosts()) == ("successful", {host.name: "ok"})

    again = run("apply", **older)
    assert again.hosts() == {host.name: "ok"}, again.stdout
    assert again.told()[host.name].startswith("unchanged")
    newer = run("apply", gpusetup_driver="580.*")
    assert newer.hosts() == {host.name: "changed"}, newer.stdout
    assert packages(host) != with_570
    back = run("rollback")
    assert back.hosts() == {host.name: "changed"}, back.stdout
    assert packages(host) == with_570
