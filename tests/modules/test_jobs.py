"""Detached jobs: started once, joined by the same request, refused beside another, survivors of their caller."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, jobs, owner
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure

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
