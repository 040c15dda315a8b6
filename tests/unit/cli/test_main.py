"""What escapes every command: a full disk is explained, anything else is said to be a bug."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gpusetup.cli import main as front
from gpusetup.cli.commands import load_command


def breaks(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def run(_arguments: object) -> None:
        raise error

    own = load_command("facts")
    broken = SimpleNamespace(**{**vars(own), "run": run})
    monkeypatch.setattr(front, "load_command", lambda _name: broken)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_takes_no_more_is_explained_wherever_it_is_met(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    breaks(monkeypatch, OSError(number, "the reason", "/var/lib/full/file"))
    assert front.main(["facts", "--format", "json"]) == 5
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert (error["reference"], error["path"]) == ("GS-414", "/var/lib/full/file")
    assert "the reason" in error["message"]
    assert "Traceback" not in told.err


def test_another_failure_of_the_system_is_still_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks(monkeypatch, OSError(errno.EBADF, "Bad file descriptor"))
    assert front.main(["facts"]) == 1
    assert "this is a bug" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["hosts.ini", "--limit", "gpu", "--", "--tags", "x"],
        ["--limit", "gpu", "hosts.ini", "--", "--tags", "x"],
        ["--limit", "gpu", "--", "--tags", "x"],
    ],
)
def test_what_stands_behind_two_dashes_is_ansibles_wherever_the_inventory_stands(words: list[str]) -> None:
    arguments = front._parsed("apply", words)
    assert arguments.ansible_arguments == ["--tags", "x"]
    assert arguments.inventory == ("hosts.ini" if "hosts.ini" in words else None)


def test_a_stray_word_is_refused_not_handed_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        front.main(["apply", "hosts.ini", "stray"])
    assert stop.value.code == 2
    assert "stray" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_refusal_that_nobody_reads_is_no_success(form: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "gpusetup", "resolve", "torch", "--gpu", "no-such-gpu", "--format", form]
    done = subprocess.run(argv, stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert done.returncode == 3
