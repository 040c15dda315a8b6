"""Detached jobs: started once, joined by the same request, refused beside another, survivors of their caller."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, jobs, owner, systemd
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure

from tests.lab.process import until
from tests.modules.stand_ins import programs, refused


def slow(running):
    running.tell("work", "half of it", 50)
    until(Path(running.state_folder, "over").exists, "the test lets it end", 60)
    return {"changed": True, "pid": os.getpid()}


def test_it_runs_in_another_process_is_joined_and_another_request_refused_meanwhile(tmp_path, monkeypatch):
    programs(tmp_path, monkeypatch, {"busctl": '#!/bin/sh\necho "$@" >"$STAND_IN_ROOT/asked"\n'})
    monkeypatch.setattr(systemd, "RUNNING", str(tmp_path))
    first = jobs.Job(str(tmp_path), "packages", {"a": 1}).start_or_join(slow, 0.1)
    assert first["state"] == "running"
    with refused("GS-452", "already changing this host"):
        jobs.Job(str(tmp_path), "packages", {"a": 2}).start_or_join(slow, 0.1)
    (tmp_path / "over").touch()
    status = jobs.Job(str(tmp_path), "packages", {"a": 1}).start_or_join(lambda _job: pytest.fail("again"), 30)
    assert status["result"]["changed"] is True
    assert (pid := status["result"]["pid"]) not in {os.getpid(), os.getsid(0)}
    assert f" gpusetup-{pid}.scope fail 1 PIDs au 1 {pid} 0" in (tmp_path / "asked").read_text(), (
        "it outlives the login"
    )


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


def test_an_answer_nobody_fetched_is_given_once(tmp_path):
    over = lambda _job: until((tmp_path / "over").exists, "nobody waits", 60) or {"number": 1}  # noqa: E731
    jobs.Job(str(tmp_path), "x", {}).start_or_join(over, 0)
    (tmp_path / "over").touch()
    told = jobs.Job(str(tmp_path), "x", {}).status_path
    until(lambda: (files.read_json(told) or {}).get("state") == "done", "it has an answer", 60)
    again = jobs.Job(str(tmp_path), "x", {})
    assert again.start_or_join(lambda _job: {"number": 2}, 5)["result"] == {"number": 1}
    assert again.start_or_join(lambda _job: {"number": 2}, 5)["result"] == {"number": 2}


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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (HostFailure("GS-453", "locked", hint="wait"), {"reference": "GS-453", "hint": "wait"}),
        (OSError(errno.EPERM, "Operation not permitted", "/etc/.half", None, "/etc/x"),
         {"reference": "GS-498", "context": "/etc/x", "hint": "if lsattr -d /etc shows i or a: chattr -ia /etc; then run the same command again"}),
        (KeyError("nothing"), {"reference": "GS-450", "hint": ""}),
        *((OSError(number, os.strerror(number), "/etc/x"), {"reference": reference, "context": "/etc/x", "note": os.strerror(number)})
          for number, reference in ((errno.EROFS, "GS-472"), (errno.ENOSPC, "GS-472"), (errno.EACCES, "GS-498"))),
    ],
)  # fmt: skip
def test_a_failure_keeps_its_words_and_a_bug_is_called_one(tmp_path, error, told):
    job = jobs.Job(str(tmp_path), "x", {})
    status = job.start_or_join(Mock(side_effect=error), 30)
    failure = status["failure"]
    assert (status["state"], {name: failure[name] for name in told}) == ("failed", told)
    assert isinstance(error, KeyError) != bool(failure["hint"])
    assert not isinstance(error, KeyError) or "KeyError" in Path(job.folder, "log").read_text()


refuse = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def test_a_job_that_cannot_write_its_status_is_no_job_that_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs.files, "write_json", refuse)
    with pytest.raises(OSError, match="No space left"):
        jobs.Job(str(tmp_path), "x", {}).start_or_join(slow, 0.1)


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
