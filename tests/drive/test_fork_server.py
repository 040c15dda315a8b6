"""Playbooks of one run are children of a process that has imported Ansible: each is as a process of its own would be."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpusetup.drive.fork_server import ForkServer
from gpusetup.drive.runner import Process
from tests.programs import gone

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact: {done: "{{ lookup('ansible.builtin.pipe', what) }}"}
"""


@pytest.fixture
def server():
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture
def environment(tmp_path):
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def argv(tmp_path):
    """argv(shell command) → a playbook that runs it here."""

    def of(command):
        (tmp_path / "play.yml").write_text(PLAY)
        (tmp_path / "vars.json").write_text(json.dumps({"what": command}))
        options = ["-i", "localhost,", "-c", "local", "-e", f"@{tmp_path}/vars.json", str(tmp_path / "play.yml")]
        return [sys.executable, "-m", "ansible", "playbook", *options]

    return of


def ended(child):
    """Run it to its end → its code, what it said."""
    lines = []
    process = Process(("ansible",), env={}, deadline=60, on_line=lambda *said: lines.append(said), already=child)
    while not process.turn(0.2):
        pass
    return process.ended().code, lines


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_playbooks_are_children_of_one_server_each_with_its_own_environment_channels_and_folder(
    server, environment, argv, tmp_path
):
    folders, parents = [], []
    for number in range(2):
        told = tmp_path / f"told{number}"
        command = f"echo $GPUSETUP_WHICH $PPID >{told}; ls -d $HOME/.ansible/tmp/ansible-local-* >>{told}"
        child = server.start(argv(command), {**environment, "GPUSETUP_WHICH": f"n{number}"}, ())
        parents.append(parent_of(child.pid))
        code, lines = ended(child)
        assert code == 0
        assert any("PLAY RECAP" in line for channel, line in lines if channel == "out")
        first, *own = told.read_text().splitlines()
        assert first.split()[0] == f"n{number}"
        folders.append({line for line in own if f"ansible-local-{child.pid}" in line})
    assert parents[0] == parents[1] != os.getpid()
    assert all(folders)
    assert not any(Path(name).exists() for names in folders for name in names)
    assert len(list(tmp_path.glob(".cache/gpusetup/tables/*/table.json"))) == 1  # Ansible's table of moved plugins


def test_variables_of_hosts_and_groups_are_read_as_ever(server, environment, argv, tmp_path):
    """Where they stand beside an inventory, by a plugin that keeps what it has seen."""
    words = argv("true")
    for number, folder in enumerate(("one", "two")):
        place = tmp_path / folder
        (place / "host_vars/a").mkdir(parents=True)
        (place / "group_vars").mkdir()
        (place / "hosts.ini").write_text("[some]\na ansible_connection=local\n")
        (place / "host_vars/a/x.json").write_text(json.dumps({"what": f"echo {number} {{{{ more }}}} >{place}/told"}))
        (place / "group_vars/some.yml").write_text(f"more: of-{folder}\n")
        code, lines = ended(server.start([*words[:4], "-i", f"{place}/hosts.ini", words[-1]], environment, ()))
        assert code == 0, lines
        assert (place / "told").read_text() == f"{number} of-{folder}\n"


def test_how_it_ended_is_told_as_popen_tells_it(server, environment, argv):
    assert ended(server.start(argv("false"), environment, ()))[0] == 2
    assert ended(server.start([*argv("true")[:4], "--no-such-option"], environment, ()))[0] == 2
    child = server.start(argv("sleep 60"), environment, ())
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert child.poll() == -signal.SIGKILL


def test_ctrl_c_stops_a_playbook_and_not_the_server(server, environment, argv, tmp_path):
    child = server.start(argv(f"touch {tmp_path}/up; sleep 60"), environment, ())
    while not (tmp_path / "up").exists():
        time.sleep(0.05)
    with pytest.raises(TimeoutError):
        child.wait(0.01)
    child.send_signal(signal.SIGINT)
    assert ended(child)[0] == 99
    assert ended(server.start(argv("true"), environment, ()))[0] == 0


def test_what_ansible_read_when_it_was_imported_cannot_be_other_for_a_child(server, environment, argv):
    assert server.start(argv("true"), environment, ()) is not None
    assert server.start(argv("true"), {**environment, "ANSIBLE_FORKS": "3"}, ()) is None
    assert server.start(argv("true"), {**environment, "HOME": "/elsewhere"}, ()) is None
    assert server.start(argv("true"), {name: environment[name] for name in environment if name != "PATH"}, ()) is None
    read, write = os.pipe()
    assert server.start(argv("true"), environment, (read,)) is None
    os.close(read)
    os.close(write)


def test_a_server_that_is_killed_takes_its_playbooks_along_and_the_next_one_has_a_process_of_its_own(
    server, environment, argv
):
    child = server.start(argv("sleep 60"), environment, ())
    os.kill(parent_of(child.pid), signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert server.start(argv("true"), environment, ()) is None
    os.kill(child.pid, signal.SIGKILL)


HOLD = """
import os, sys, time
from gpusetup.drive.fork_server import ForkServer
server = ForkServer()
child = server.start(sys.argv[1:], dict(os.environ), ())
print(child.pid, flush=True)
time.sleep(60)
"""


def test_nothing_is_left_of_a_run_that_is_killed(environment, argv, tmp_path):
    path = {**environment, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = argv(f"touch {tmp_path}/up; sleep 60")
    with subprocess.Popen([sys.executable, "-c", HOLD, *words], env=path, stdout=subprocess.PIPE, text=True) as run:
        pid = int(run.stdout.readline())
        server = parent_of(pid)
        while not (tmp_path / "up").exists():
            time.sleep(0.05)
        run.kill()
    assert gone(server)
    assert gone(pid)
