"""Real Ansible under real ansible-runner over hosts that are answers: it behaves as Ansible alone does, and writes no secret."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gpusetup.content import collections_path
from gpusetup.drive import shards as shards_module
from gpusetup.drive.argv import Reach
from gpusetup.drive.engines import runner as engine_module
from gpusetup.drive.engines.runner import Runner
from gpusetup.drive.playbook import Session, run_playbook
from gpusetup.drive.rundir import new_run
from gpusetup.drive.shards import SIZE
from gpusetup.errors import BadInputError
from tests.simulated_fleet import FAULTS, SimulatedFleet, working

PASSWORD = "s3cret-51ab2e"


@pytest.fixture
def fleet(tmp_path):
    return SimulatedFleet(tmp_path / "fleet", 12, kinds=("ubuntu24.04-h200-keep", "debian12-t4-open"))


@pytest.fixture
def environment(tmp_path):
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}


@pytest.fixture
def session(tmp_path, fleet, environment):
    return Session(
        run=new_run(tmp_path / "state"),
        collections=collections_path(),
        reach=Reach(inventory=str(fleet.inventory)),
        environment=environment,
        engine=Runner(),
    )


def facts(fleet, environment, *words, **keywords):
    argv = [sys.executable, "-m", "gpusetup", "facts", str(fleet.inventory), "--format", "json", *words]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120, **keywords)


def jobs(home):
    return sorted(home.glob("**/runs/*/runner/*/artifacts/1"))


def test_the_answer_is_that_of_ansible_and_each_shard_is_a_job_with_its_artifacts(tmp_path, fleet, environment):
    bad = fleet.break_every(2, FAULTS)
    shards = environment | {SIZE: "5"}
    by_ansible, by_runner = (facts(fleet, shards, "--engine", name) for name in ("ansible", "runner"))
    assert by_runner.returncode == by_ansible.returncode == 6, by_runner.stderr
    told, known = json.loads(by_runner.stdout), json.loads(by_ansible.stdout)
    assert told["hosts"] == known["hosts"]
    assert {name: failure["exit"] for name, failure in told["failures"].items()} == {
        name: failure["exit"] for name, failure in known["failures"].items()
    }
    assert set(told["failures"]) == set(bad)
    found = jobs(tmp_path)
    assert [job.parents[1].name for job in found] == ["001-facts", "002-facts-1", "003-facts-2"]
    for job in found:
        events = [json.loads(path.read_text()) for path in (job / "job_events").iterdir()]
        assert sorted(event["counter"] for event in events) == list(range(1, len(events) + 1))
        assert {"playbook_on_start", "runner_on_ok", "playbook_on_stats"} <= {event["event"] for event in events}
        assert "TASK [Look at the host]" in (job / "stdout").read_text()
        assert (job / "status").read_text() == "failed"
        assert (job / "rc").read_text() in ("2", "4")
        assert "gpusetup.stack.facts" in json.loads((job / "command").read_text())["command"]


def test_ansible_runners_own_reader_reads_what_is_left(session):
    from ansible_runner import Runner as Reader
    from ansible_runner.config.runner import RunnerConfig

    done = run_playbook(session, "facts", deadline=60)
    assert done.finished.ok
    (job,) = jobs(session.run.path.parents[1])
    reader = Reader(RunnerConfig(private_data_dir=str(job.parents[1]), ident="1"))
    assert len(list(reader.host_events("gpu-00003"))) == 2
    assert set(reader.stats["ok"]) == set(done.track.hosts)


def test_no_secret_is_written_by_anybody(tmp_path, fleet, environment):
    text = fleet.inventory.read_text()
    fleet.inventory.write_text(f"{text}gpusetup_proxy=http://me:{PASSWORD}@proxy.example:3128\nansible_become_password={PASSWORD}\n")  # fmt: skip
    fleet.answer("gpu_facts", {"failed": True, "msg": f"http://me:{PASSWORD}@proxy.example:3128 said no"}, host="gpu-00001")  # fmt: skip
    secret = environment | {"AWS_SECRET_ACCESS_KEY": PASSWORD, "ANSIBLE_GALAXY_SERVER_X_TOKEN": PASSWORD}
    done = facts(fleet, secret, "--engine", "runner", "-K", "--", "-vvv", input=f"typed-{PASSWORD}\n")
    assert done.returncode == 5, done.stderr
    assert jobs(tmp_path)
    written = [path for path in (tmp_path / ".local").rglob("*") if path.is_file()]
    assert len(written) > 20
    assert [path.name for path in written if PASSWORD in path.read_text(errors="replace")] == []
    assert "http://***@proxy.example:3128 said no" in "".join(
        path.read_text() for path in written if "job_events" in str(path)
    )
    assert [path.name for path in (tmp_path / ".local").rglob("*") if path.is_fifo()] == []


def test_ctrl_c_ends_ansible_and_the_job_says_that_it_was_cancelled(tmp_path, fleet, environment):
    fleet.break_every(12, ["hangs"])
    argv = [sys.executable, "-m", "gpusetup", "facts", str(fleet.inventory), "--engine", "runner"]
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + 60
        while len(list((fleet.folder / "calls").iterdir())) < 11 and time.monotonic() < until:
            time.sleep(0.05)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert process.returncode == 130
    assert time.monotonic() - started < 12
    (job,) = jobs(tmp_path)
    assert (job / "status").read_text() == "canceled"
    assert not working(tmp_path)


def test_at_the_deadline_nothing_is_left_running_and_each_host_has_its_verdict(tmp_path, fleet, session):
    fleet.break_every(12, ["hangs"])
    done = run_playbook(session, "facts", deadline=8)
    assert done.finished.timed_out
    assert len([host for host in done.track.hosts.values() if host.failure]) == 12
    assert done.track.hosts["gpu-00011"].failure.task == "Look at the host"
    assert "exceeded its time limit" in done.track.hosts["gpu-00011"].failure.message
    (job,) = jobs(tmp_path)
    assert [(job / name).read_text() for name in ("status", "rc")] == ["error", "254"]
    assert not list((job / "job_events").glob("*-partial.json"))
    assert not working(tmp_path)


def test_a_host_that_hangs_holds_up_no_other_shard(fleet, session, monkeypatch):
    monkeypatch.setenv(SIZE, "4")
    monkeypatch.setattr(shards_module, "_SILENT_SECONDS", 0.5)
    monkeypatch.setattr(shards_module, "_BESIDE", 1)
    (fleet.folder / "faults/gpu-00000").write_text("hangs")
    done = run_playbook(session, "facts", deadline=12)
    failed = [name for name, host in done.track.hosts.items() if host.failure]
    assert failed == ["gpu-00000", "gpu-00001", "gpu-00002", "gpu-00003"]
    assert len([host for host in done.track.hosts.values() if "gpu_facts" in host.data]) == 11


def test_what_ansible_complains_of_is_passed_on(fleet, environment):
    done = facts(fleet, environment, "--engine", "runner", "--", "--no-such-option")
    assert done.returncode == 3
    assert "unrecognized arguments: --no-such-option" in done.stderr


def test_a_question_that_nobody_answers_ends_at_once(fleet, environment):
    started = time.monotonic()
    done = facts(fleet, environment, "--engine", "runner", "--", "--ask-vault-pass")
    assert time.monotonic() - started < 30
    assert done.returncode == 3


def test_without_ansible_runner_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(engine_module, "find_spec", lambda _name: None)
    with pytest.raises(BadInputError, match="not installed") as caught:
        Runner()
    assert caught.value.hint == f"{sys.executable} -m pip install 'ansible-runner>=2.4,<3'"
