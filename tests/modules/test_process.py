"""Programs on the host: their lines, their end, and what they leave behind."""

import os

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.alternatives import Alternative
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.boot_arguments import Grubby, Pbl

from tests.modules.stand_ins import refused
from tests.programs import alive

ENV = process.environment()


def run(script):
    return process.stream(["sh", "-c", script], ENV, lambda _line: None)


def test_a_daemon_that_keeps_the_pipe_holds_nobody_up_nor_does_one_that_never_stops_talking():
    code, (daemon,) = run("sleep 1000 & echo $!; exit 3")
    assert (code, alive(int(daemon))) == (3, True)
    code, daemon, error = process.output(["sh", "-c", "sleep 1000 & echo $!; echo no >&2"], ENV)
    assert (code, alive(int(daemon)), error) == (0, True, "no\n")
    assert run("(while :; do echo noise; sleep 0.01; done) & exit 0")[0] == 0


def test_all_that_was_said_before_the_end_is_heard():
    code, tail = run("for i in $(seq 300); do echo line $i; done; printf 'half\\rrest'")
    assert (code, tail[-3:], len(tail)) == (0, ["line 300", "half", "rest"], 302)


def test_a_program_that_closes_its_output_is_waited_for_until_its_deadline():
    assert run("exec >&- 2>&-; sleep 0.5; exit 4") == (4, [])
    code, _out, error = process.output(["sh", "-c", "exec >&- 2>&-; sleep 100"], ENV, 0.3)
    assert (code, error) == (process.TIMED_OUT, "sh gave no answer within 0.3 s")


def test_a_missing_program_is_told_as_such():
    told = []
    code, tail = process.stream(["no-such-tool", "x"], ENV, lambda _line: None, log=told.append)
    assert (code, tail) == (process.MISSING, ["no-such-tool: this program is not installed"])
    assert told == ["$ no-such-tool x", *tail]
    assert process.output(["no-such-tool"], ENV) == (process.MISSING, "", tail[0])


def test_status_lines_come_through_their_own_descriptor():
    lines, status = [], []
    argv = ["sh", "-c", "echo out; echo status >/dev/fd/$0", "{fd}"]
    assert process.stream(argv, ENV, lines.append, status.append)[0] == 0
    assert (lines, status) == (["out"], ["status"])
    before = len(os.listdir("/proc/self/fd"))
    assert process.stream(["no-such-tool", "{fd}"], ENV, lines.append, status.append)[0] == process.MISSING
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_handed_in_arrives_whole_and_bytes_stay_bytes():
    data = bytes(range(256)) * 4096
    assert process.raw(["cat"], ENV, 10, data) == (0, data, b"")
    assert process.output(["cat"], ENV, 10, "text") == (0, "text", "")


def test_an_interrupted_read_leaves_no_program_behind(monkeypatch):
    seen = []
    monkeypatch.setattr(process.commands, "listen", lambda *given: seen.append(given[0]) or pytest.exit("interrupted"))
    with pytest.raises(pytest.exit.Exception):
        process.output(["sleep", "100"], ENV)
    assert seen[0].poll() is not None


@pytest.mark.parametrize("thing", [Alternative("cuda", ENV), Grubby("x=y", ENV), Pbl("x=y", ENV)])
def test_a_look_that_fails_is_no_absence(thing, monkeypatch):
    monkeypatch.setattr(process, "output", lambda *_words: (1, "", "it cannot be read"))
    with refused("gave no answer", "it cannot be read"):
        thing.look()
