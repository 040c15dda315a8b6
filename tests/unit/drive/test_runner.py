"""The one way to start a process, with real signals, and how often Ansible's own looks for results."""

import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gpusetup.drive import callback
from gpusetup.drive.events import Failure
from gpusetup.drive.runner import Finished, Process, descendants, end_all, end_of, run
from gpusetup.errors import BadInputError
from tests.programs import gone
from tests.refusals import refused

ENV = {"PATH": os.environ["PATH"]}
DEAF = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(60)"


def python(code):
    return [sys.executable, "-c", code]


def test_channels_are_kept_apart_our_environment_is_not_inherited_and_arguments_meet_no_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_SECRET", "x")
    hostile = f"$(touch {tmp_path}/owned); `touch {tmp_path}/owned`"
    code = "import os, sys; print(sys.argv[1]); print('PLANTED_SECRET' in os.environ, file=sys.stderr); sys.exit(3)"
    done = run([*python(code), hostile], env=ENV, deadline=20)
    assert (done.code, done.out, done.err, done.ok) == (3, f"{hostile}\n", "False\n", False)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_program_is_explained():
    with refused(BadInputError, "GS-401", match="cannot start /no/such/program"):
        run(["/no/such/program"], env=ENV, deadline=1)


def test_the_deadline_kills_children_that_opened_their_own_session(tmp_path):
    child = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        f"open({str(child)!r}, 'w').write(str(p.pid))\n"
        "time.sleep(60)\n"
    )
    over = lambda: 0 if child.exists() and child.read_text() else 60  # noqa: E731
    done = end_of(Process(python(code), env=ENV, deadline=over, on_line=print))
    assert done.timed_out
    assert not done.ok
    assert gone(int(child.read_text()))


def test_garbage_bytes_and_endless_lines_are_survived():
    code = "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\x00' + b'y' * 40_000_000 + b'\\nlast\\n')"
    lines: list[str] = []
    done = end_of(Process(python(code), env=ENV, deadline=60, on_line=lambda _, line: lines.append(line)))
    assert done.code == 0
    assert lines[-1] == "last"


def press(_channel="", line="up"):
    """Once the process says that it is up, interrupt it, from another thread, as a person would."""
    if line == "up":
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()


@pytest.mark.parametrize(
    ("again", "grace"), [(press, 999), (None, 1)], ids=["the second interrupt", "its grace is over"]
)
def test_an_interrupted_process_that_will_not_stop_is_killed(again, grace):
    done = end_of(Process(python(DEAF), env=ENV, deadline=999, on_line=press, on_interrupt=again, grace=grace))
    assert (done.interrupted, done.code) == (True, -signal.SIGKILL)


def test_when_the_listener_fails_nothing_goes_on_unwatched():
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        end_of(Process(python(code), env=ENV, deadline=60, on_line=full))
    assert gone(int(full.call_args.args[1]))


def test_a_file_name_that_is_not_utf_8_and_a_deep_answer_end_no_reader():
    answers = ('{"a": "\\udcff \\ud83d\\ude00"}', "[" * 100_000)
    found = [Finished((), 0, text, "", 0.0).document() for text in answers]
    assert found == [{"a": "\\udcff \U0001f600"}, None]


BREEDER = """
import os, sys, time
while True:  # a family that grows while it is ended, each child in a session of its own
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    print(end=".", flush=True)
    time.sleep(0.001)
"""


def test_a_family_that_grows_while_it_is_ended_is_ended_whole():
    with subprocess.Popen([sys.executable, "-c", BREEDER], stdout=subprocess.PIPE) as process:
        process.stdout.read(20)
        seen = descendants([process.pid])
        assert len(seen) >= 10
        end_all([process.pid])
        born = len(process.stdout.read()) + 20
    left = [pid for pid in range(process.pid, process.pid + born + 50) if _waits_in_a_session_of_its_own(pid)]
    assert left == []


def _waits_in_a_session_of_its_own(pid):
    try:
        return os.getsid(pid) == pid and b"os.setsid()" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


constants = importlib.import_module("ansible.constants")
TASK = SimpleNamespace(
    _uuid="1", action="gpu_packages", name="One transaction", no_log=False, get_name=lambda: "One transaction",
    _role=None,
)  # fmt: skip
AGAIN = SimpleNamespace(
    host=SimpleNamespace(get_name=lambda: "h1"), task=TASK, result={"finished": False, "_ansible_no_log": False}
)


def interval():
    """Return the time between two looks of Ansible for results."""
    return constants.DEFAULT_INTERNAL_POLL_INTERVAL


@pytest.fixture
def writer(tmp_path, monkeypatch):
    def make(of_the_site):
        monkeypatch.setattr(constants, "DEFAULT_INTERNAL_POLL_INTERVAL", of_the_site, raising=False)
        monkeypatch.setenv("GPUSETUP_EVENTS", str(tmp_path / "events.jsonl"))
        monkeypatch.setattr(callback, "die_with_parent", lambda: True)  # the parent here is who runs the tests
        return callback.EventWriter()

    return make


def test_a_long_step_is_looked_at_less_often_and_the_next_one_briskly(writer, tmp_path):
    events = writer(0.001)
    events.v2_playbook_on_task_start(TASK)
    at_first = interval()
    events.v2_runner_retry(AGAIN)
    assert interval() >= 5 * at_first
    events.v2_playbook_on_task_start(TASK)
    assert interval() == at_first
    told = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert told == ["task", "retry", "task"]
    writer(0.3).v2_runner_retry(AGAIN)
    assert interval() == 0.3, "what a site says in its settings stays"


@pytest.mark.parametrize(
    ("ansibles", "told"),
    [
        ("gpusetup.stack.gpu_driver : Load the module", "Load the module"),
        ("gpusetup.stack.gpu_cuda : Validating arguments against arg spec 'main' - CUDA toolkits", "CUDA toolkits"),
        ("r : Validating arguments against arg spec 'main'", "Validating arguments against arg spec 'main'"),
    ],
)
def test_a_task_is_told_by_its_own_name(writer, tmp_path, ansibles, told):
    writer(0.001).v2_playbook_on_task_start(SimpleNamespace(**vars(TASK) | {"get_name": lambda: ansibles}))
    assert json.loads((tmp_path / "events.jsonl").read_text())["name"] == told


AWAY = 'Task failed: Data could not be sent to remote host "g1". Make sure this host can be reached over ssh: '
REFUSED = "connect to host g1 port 22: Connection refused"


@pytest.mark.parametrize(
    ("ansibles", "why"),
    [
        (f"Failed to connect to the host via ssh: ssh: {REFUSED}", REFUSED),
        (f"{AWAY}ssh: {REFUSED}", REFUSED),
        (AWAY, "the SSH connection broke off"),
    ],
)
def test_a_host_that_cannot_be_reached_is_told_in_the_words_of_ssh(writer, tmp_path, ansibles, why):
    result = SimpleNamespace(host=AGAIN.host, task=TASK, result={"msg": ansibles, "unreachable": True})
    writer(0.001).v2_runner_on_unreachable(result)
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["message"] == why


NOLOGIN, NO_TTY = "This account is currently not available.\n", "sudo: sorry, you must have a tty to run sudo\n"


@pytest.mark.parametrize(
    ("printed", "told", "hint"),
    [
        ({"module_stderr": "Killed\n"}, "when memory runs out", ""),
        ({"module_stderr": "pyenv: python3: command not found\n"}, "pyenv: python3", "interpreter=/usr/bin/python3"),
        ({"module_stdout": NOLOGIN, "module_stderr": ""}, "This account is currently not available.", "-m raw -a id"),
        ({"module_stdout": "", "module_stderr": NO_TTY}, NO_TTY.strip(), "requiretty"),
        ({"module_stderr": "/bin/sh: 1: sudo: Permission denied\n"}, "Permission denied", "cannot run sudo"),
        ({"module_stderr": "sudo: /usr/bin/python3: command not found\n"}, "python3: command not found", "-K"),
        ({"module_stderr": "", "msg": "Task failed: Incorrect sudo password"}, "Incorrect", "refuses this password"),
        ({"module_stderr": "sudo: a password is required\n"}, "sudo: a password is required", "-K"),
    ],
)
def test_a_login_that_ran_no_module_is_told_in_its_own_words(writer, tmp_path, printed, told, hint):
    said = {"msg": "Module result deserialization failed: No start of json char found", **printed}
    writer(0.001).v2_runner_on_failed(SimpleNamespace(host=AGAIN.host, task=TASK, result=said))
    message = json.loads((tmp_path / "events.jsonl").read_text())["message"]
    assert told in message
    assert "deserialization" not in message
    assert hint in Failure("", message).way_out("hosts.ini")
