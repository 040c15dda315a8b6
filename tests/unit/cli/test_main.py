"""What escapes every command: a full disk is explained, anything else is said to be a bug."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpusetup.cli import main as front
from gpusetup.cli.commands import load_command
from gpusetup.cli.session import _ask
from gpusetup.errors import BadInputError


def breaks(monkeypatch, error):
    def run(_arguments):
        raise error

    own = load_command("facts")
    broken = SimpleNamespace(**{**vars(own), "run": run})
    monkeypatch.setattr(front, "load_command", lambda _name: broken)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EMFILE])
def test_a_disk_that_takes_no_more_is_explained_wherever_it_is_met(monkeypatch, capsys, number):
    breaks(monkeypatch, OSError(number, "the reason", "/var/lib/full/file"))
    assert front.main(["facts", "--format", "json"]) == 5
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert (error["reference"], error["path"]) == ("GS-414", "/var/lib/full/file")
    assert "the reason" in error["message"]
    assert "Traceback" not in told.err


def test_a_file_that_cannot_be_used_is_named_and_no_bug(monkeypatch, says):
    breaks(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "/root/facts.json"))
    assert "cannot use /root/facts.json: Permission denied [GS-105]" in says(3, "facts")
    says(3, "facts", "--root", "x" * 300)
    says(1, "facts", "--debug")


def test_another_failure_of_the_system_is_still_a_bug(monkeypatch, says):
    breaks(monkeypatch, OSError(errno.EBADF, "Bad file descriptor"))
    assert "this is a bug" in says(1, "facts")


@pytest.mark.parametrize("words", ["hosts.ini --limit gpu", "--limit gpu hosts.ini", "--limit gpu"])
def test_what_stands_behind_two_dashes_is_ansibles_wherever_the_inventory_stands(words):
    arguments = front._parsed("apply", [*words.split(), "--", "--tags", "x"])
    assert arguments.ansible_arguments == ["--tags", "x"]
    assert arguments.inventory == ("hosts.ini" if "hosts.ini" in words else None)


UNREAD = {
    "resolve torch --gpu no-such-gpu": 3, "resolve torch --gpu no-such-gpu --format json": 3,
    "why-not cuda=13.1 --gpu v100": 4, "matrix torch==9.*": 4, "matrix --data": 0, "matrix gpu": 0,
    "doctor gibberish-that-nobody-printed": 3, "doctor --list": 2, "facts absent.ini": 3, "plan absent.ini": 3,
    "verify --from absent.json": 3, "fleet": 0, "fleet history nobody": 3, "no-such-command": 2,
    "lock torch --no-such-option": 2, "resolve --help": 0, "--help": 0, "--version": 0, "": 0,
}  # fmt: skip
"""A command → its exit code, which is the same when nobody reads what it prints."""


@pytest.mark.parametrize("words", UNREAD)
def test_a_reader_that_left_changes_no_exit_code(words, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "gpusetup", *words.split()]
    done = subprocess.run(argv, stdout=writing, stderr=writing, check=False, cwd=tmp_path, timeout=60)
    os.close(writing)
    assert done.returncode == UNREAD[words]


def test_why_says_how_to_ask_for_what_it_was_asked(says):
    assert "--allow-builds" in says(0, "why", "torch=2.6.0", "--allow-builds", "--gpu", "h100")
    says(0, "why", "python=3.11", "--gpu", "h100")


def test_a_password_that_is_no_text_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), "utf-8"))
    with pytest.raises(BadInputError, match="sudo password"):
        _ask("sudo password: ")


def test_a_python_without_what_gpusetup_needs_is_told_what_to_install():
    root = Path(front.__file__).parents[2]
    argv = [sys.executable, "-S", "-m", "gpusetup", "matrix", "torch"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=root, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{sys.executable} -m pip install msgspec" in done.stderr
    assert "Traceback" not in done.stderr
