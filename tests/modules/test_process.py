"""Programs on the host: their lines, their end, and what they leave behind."""

import os

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import process

ENV = process.environment()


def run(script):
    return process.stream(["sh", "-c", script], ENV, lambda _line: None)


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
