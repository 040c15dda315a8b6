"""One table of what goes wrong around a command, and one rule for all: words and a code of its own, never a traceback."""

import os
import pty
import re
import shlex
import subprocess
import sys

import pytest

from gpusetup.cli import streams
from gpusetup.drive.inventory import examine
from tests.property.test_command_line import run
from tests.stored import stored_rows

GPUSETUP = f"{shlex.quote(sys.executable)} -m gpusetup"
ANSWERS = ("--help", "resolve torch --gpu h100", "doctor 'Xid 79'", "export schema")
UNWRITTEN = "cannot write the answer"


def shell(line, folder):
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    assert "bug in gpusetup" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("unbuffered", "fault"), [("", ">/dev/full"), ("", ">&-"), ("1", ">/dev/full")])
@pytest.mark.parametrize("command", ANSWERS)
def test_an_answer_that_cannot_be_written_is_a_failure(command, unbuffered, fault, tmp_path):
    code, _out, err = shell(f"PYTHONUNBUFFERED={unbuffered} {GPUSETUP} {command} {fault}", tmp_path)
    assert (code, UNWRITTEN in err) == (3, True), err


def test_a_terminal_that_was_closed_ends_no_command():
    ours, theirs = pty.openpty()
    os.close(ours)
    with streams._Stream(os.fdopen(theirs, "wb", 0), write_through=True) as said:
        print("stopping", file=said, flush=True)


def test_a_home_that_takes_nothing_costs_no_answer(tmp_path):
    assert shell(f"HOME=/proc/nowhere XDG_STATE_HOME= {GPUSETUP} doctor 'Xid 79'", tmp_path)[0] == 0


FILES = {
    "bytes.ini": b"gpu01\n\xff\xfe\x9a host=\x80\n",
    "zero.ini": b"gpu01\0\ngpu02\n",
    "bomb.yml": b"all:\n  vars:\n    a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + b"".join(b"    a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 9))
    + b"  hosts: {gpu01: }\n",
    "empty.log": b"",
    "zero.log": b"a\0b",
    "file": b"",
    "none.json": b'{"hosts": {}}',
    "deep.json": b"[" * 100_000,
    "hostless.json": b'{"schema": "gpusetup/facts/1", "hosts": {}}',
    "failed.json": b'{"schema": "gpusetup/facts/1", "hosts": {}, "failures": {"a": '
    b'{"reference": "GS-001", "message": "of another release", "exit": 99}}}',
    "host.ini": b"[gpus]\ngpu01\n",
}
ROWS = stored_rows("bad_input_rows.json")


@pytest.mark.parametrize(("words", "code", "told"), ROWS, ids=[row[0] for row in ROWS])
def test_bad_input_is_refused_in_words(words, code, told, tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    if re.search("[<>]", words.partition("$(")[0]):
        found = shell(f"{GPUSETUP} {words}", tmp_path)
    else:  # a shell expands the words, and a process less runs them
        said = subprocess.run(["sh", "-c", f"printf '%s\\0' {words}"], cwd=tmp_path, capture_output=True, check=True)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        found = run([os.fsdecode(word) for word in said.stdout.split(b"\0")[:-1]])
    assert "Traceback" not in found[2]
    assert found[0] == code, found
    assert told in found[2], found
    assert "error: " not in found[2] or "\nhint: " in found[2] or code == 2, found


def test_aliases_that_a_fleet_has_are_no_bomb(tmp_path):
    hosts = "".join(f"    gpu{number}: *same\n" for number in range(2000))
    (tmp_path / "fleet.yml").write_text(f"all:\n  hosts:\n    gpu: &same {{a: 1, b: [1, 2]}}\n{hosts}")
    examine(tmp_path / "fleet.yml")
