"""What escapes every command: a full disk is explained, anything else is said to be a bug."""

from __future__ import annotations

import errno
import json
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
