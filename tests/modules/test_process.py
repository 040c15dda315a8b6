"""Programs and texts on the host: their lines, their end, and what need not be UTF-8."""

import os

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import apt, files, gpu_users, process, zypper

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


LATIN = "# für alle\n".encode("latin-1")


def test_files_in_another_encoding_are_read(tmp_path, monkeypatch):
    file = tmp_path / "1/comm"
    (tmp_path / "1/fd").mkdir(parents=True)
    (tmp_path / "1/fd/3").symlink_to("/dev/nvidia0")
    file.write_bytes(LATIN)
    monkeypatch.setattr(gpu_users, "PROC", str(tmp_path))
    assert [pid for pid, _name in gpu_users._holders(["0"])] == [1]
    os.mkfifo(tmp_path / "pipe")
    assert files.read_bytes(str(tmp_path / "pipe")) == b"", "nothing waits for a pipe"
    file.write_bytes(LATIN + b"[main]\n")
    monkeypatch.setattr(apt, "_PREFERENCES", str(file))
    monkeypatch.setattr(zypper, "CONFIGURATION", [str(file)])
    pins = apt.Apt(together="580")
    with zypper.Zypper()._past_locks() as env, open(env["ZYPP_CONF"], "rb") as own, open(str(pins.pins), "rb") as text:
        assert own.read().startswith(LATIN)
        assert LATIN in text.read()
    pins.close()
