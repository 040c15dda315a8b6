"""Detached jobs: started once, joined by the same request, refused beside another; gpu_nouveau is one of them."""

import errno
import itertools
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, jobs, lifecycle, owner, preview
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.modules import gpu_nouveau

from tests.lab.process import until
from tests.modules.stand_ins import refused


def slow(running):
    running.tell("work", "half of it", 50)
    until(Path(running.state_folder, "over").exists, "the test lets it end", 60)
    return {"changed": True, "pid": os.getpid()}


def test_a_resumed_apply_follows_the_job_it_left_behind_at_another_step(tmp_path):
    packages = jobs.Job(folder := str(tmp_path), "packages", {})
    owner.take(folder, {"home": "me", "run": "1"}, "wish")
    jobs.Job(folder, "python", {}).start_or_join(slow, 0.1)
    owner.take(folder, {"home": "me", "run": "2"}, "another")
    with refused("GS-452", "job python-"):
        packages.start_or_join(lambda _job: pytest.fail("beside"), 30)
    owner.take(folder, {"home": "me", "run": "3"}, "wish")
    (tmp_path / "over").touch()
    status = packages.start_or_join(lambda _job: pytest.fail("beside"), 30)
    assert (status["state"], status["message"], status["result"]) == ("running", "done", None)
    assert packages.start_or_join(lambda _job: {"own": True}, 30)["result"] == {"own": True}


def test_a_failure_that_nobody_fetched_is_tried_again_by_the_next_run(tmp_path, monkeypatch):
    with monkeypatch.context() as ahead:  # the clock is set back while the job runs
        ahead.setattr(owner.time, "time", lambda: 9e9)
        owner.take(folder := str(tmp_path), {"home": "me", "run": "1"}, "wish")
    job = jobs.Job(folder, "x", {})
    monkeypatch.setattr(job, "_collect", dict)
    assert job.start_or_join(refuse, 30)["state"] == "failed"
    assert job.joinable()
    owner.take(folder, {"home": "me", "run": "2"}, "wish")
    assert not job.joinable()
    assert job.start_or_join(lambda _job: {"again": True}, 30)["result"] == {"again": True}
    monkeypatch.setattr(jobs.time, "time", lambda: 9e8)
    assert not job.joinable(), "an answer from years to come is not of this run"


refuse = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def test_a_disk_that_fills_up_ends_no_step_and_does_not_hide_its_end(tmp_path, monkeypatch):
    def fills_up(job):
        monkeypatch.setattr(jobs.files, "write_json", refuse)  # in the job's process alone
        job.log_path = "/dev/full"
        job.tell("work", "half")
        job.log("half")
        raise HostFailure("GS-455", "apt could not finish")

    status = jobs.Job(str(tmp_path), "x", {}).start_or_join(fills_up, 30)
    assert (status["state"], status["failure"]["reference"]) == ("failed", "GS-455")


@pytest.mark.parametrize("over", [{"boot": "another"}, {"born": "1"}], ids=["of an earlier boot", "killed"])
def test_a_job_that_is_over_without_an_end_is_started_again(tmp_path, over):
    job, pid = jobs.Job(str(tmp_path), "x", {}), os.getpid()
    there = {"state": "running", "pid": pid, "born": jobs._born(pid), "boot": owner.boot(), "updated": 0, "message": ""}
    os.makedirs(job.folder)
    files.write_json(job.status_path, {**there, **over})
    status = job.start_or_join(lambda _job: {"again": True}, 30)
    assert (status["state"], status["result"]) == ("done", {"again": True})


class Slow:
    """Writes its file at once, then goes on until it is told to end, as a rebuild does in its own time."""

    def __init__(self, params, check=False, **_more):
        self.path = Path(params["state_dir"]) / "blacklist"
        self.check = check

    def run(self):
        changed = not self.path.exists()
        if not self.check:
            self.path.write_text("blacklist nouveau\n")
            until(self.path.with_name("end").exists, "the test lets it end", 60)
        return {"changed": changed, "warnings": []}


@pytest.mark.parametrize("ends_at_look", range(5))
def test_a_rebuild_that_still_runs_is_waited_for(run_module, monkeypatch, tmp_path, ends_at_look):
    monkeypatch.setattr(gpu_nouveau, "Nouveau", Slow)
    host = {"state_dir": str(tmp_path), "simulated_root": ""}

    def told(poll):
        answer = run_module(gpu_nouveau, host=host, poll=poll)
        return answer["finished"], answer.get("changed")

    assert (told(1)[0], (tmp_path / "blacklist").exists()) == (False, True)
    with refused("already changing this host"):
        lifecycle.Lifecycle({**host, "wanted": {}, "manager": "apt", "network": {}}).clean()
    look = preview.Preview(host)
    look._sanity(Mock())  # it does not ask for packages while the job is at work
    (found,) = look.findings
    assert found["text"].startswith(f"gpusetup is changing this host: job {next((tmp_path / 'jobs').iterdir()).name}")
    read, looks = jobs._read, itertools.count()

    def ends_meanwhile(folder):
        if next(looks) == ends_at_look:
            (tmp_path / "end").touch()
            until(lambda: not jobs._runs(read(folder)), "the job ends")
        return read(folder)

    monkeypatch.setattr(jobs, "_read", ends_meanwhile)
    assert [told(20), told(20)] == [(True, True), (True, False)]
    jobs.refuse_while_running(str(tmp_path))


def test_what_only_the_work_itself_shows_is_told_once(run_module, monkeypatch, tmp_path):
    def run(self):
        return {"changed": True, "warnings": ["known before", *([] if self.check else ["the menu stays as it was"])]}

    monkeypatch.setattr(Slow, "run", run)
    monkeypatch.setattr(gpu_nouveau, "Nouveau", Slow)
    answer = run_module(gpu_nouveau, host={"state_dir": str(tmp_path)}, poll=20)
    assert (answer["finished"], answer["warnings"]) == (True, ["the menu stays as it was"])
