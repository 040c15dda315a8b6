"""The host is rebooted once and awaited by its boot id: what is no new boot is no reboot, whatever ssh answers meanwhile."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup.content import collections_path
from gpusetup.drive.argv import ansible_environment
from tests.modules.stand_ins import write
from tests.stored import stored

PACKAGE = Path(__file__).resolve().parents[2] / "gpusetup"
IDS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
SSH = stored("reboot_ssh.txt")


@pytest.fixture
def reboot(tmp_path):
    """reboot(what each look after it meets, …) → the task's result, what was asked."""

    def run(*then, code=0, before=IDS[0], connection="ssh", words=(), **arguments):
        (tmp_path / "before").write_text(f"{before}\r\n")  # as through a terminal, which Ansible asks ssh for
        (tmp_path / "then").write_text("".join(f"{line}\n" for line in then))
        (tmp_path / "asked").write_text("")
        write(tmp_path, {"ssh": SSH.format(folder=tmp_path, code=code)}, 0o755)
        task = {"gpusetup.stack.gpu_reboot": arguments, "register": "made"}
        play = {"hosts": "all", "gather_facts": False, "connection": connection, "tasks": [task]}
        (tmp_path / "play.json").write_text(json.dumps([play]))
        outside = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANSIBLE_SSH_EXECUTABLE": str(tmp_path / "ssh")}
        told = tmp_path / "events.jsonl"
        environment = ansible_environment(outside, collections=collections_path(), package=PACKAGE, events=told)
        told.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "ansible", "playbook", "-i", "h,", str(tmp_path / "play.json"), *words]
        subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)
        events = [json.loads(line) for line in told.read_text().splitlines()]
        (found,) = [event for event in events if event["event"] in {"ok", "changed", "failed", "unreachable"}]
        return found, [line for line in (tmp_path / "asked").read_text().splitlines() if line]

    return run


@pytest.mark.parametrize("code", [0, 255])
def test_it_is_back_when_it_has_another_boot_id(reboot, code):
    """Whatever it answers before: that it is not down yet, that it is down, that nobody may log in yet."""
    meets = (IDS[0], "refused", "booting", "sudo", "no id at all", IDS[1])
    found, asked = reboot(*meets, code=code, text="it's time; now")
    assert (found["event"], found["data"]["rebooted"]) == ("changed", True)
    first, command, *looks = asked
    assert "boot_id" in first
    assert f"!= {IDS[0]} ] || shutdown -r now" in command, "ssh may repeat it when the host is up again"
    assert "time; now" in command
    assert len(looks) == 6
    assert all("boot_id" in look for look in looks)


@pytest.mark.parametrize(("then", "why"), [("refused", "Connection refused"), (IDS[0], "it has not gone down")])
def test_a_host_that_does_not_come_back_is_said_with_what_was_last_seen(reboot, then, why):
    found, _asked = reboot(then, timeout=2)
    assert found["event"] == "failed"
    assert "did not come back from its reboot within 2 s" in found["message"]
    assert why in found["message"]


def test_a_refused_command_is_told_in_its_own_words_and_nobody_waits(reboot, tmp_path):
    (tmp_path / "refuses").touch()
    found, asked = reboot(IDS[1])
    assert found["event"] == "failed"
    assert found["message"] == "the reboot command failed (exit 1): a shutdown is inhibited"
    assert not found["data"]["rebooted"]
    assert len(asked) == 2


def test_a_host_that_tells_no_boot_id_is_not_rebooted(reboot):
    found, asked = reboot(IDS[1], before="cat: no such file")
    assert found["event"] == "failed"
    assert "not rebooted" in found["message"]
    assert len(asked) == 1


@pytest.mark.parametrize(("connection", "words"), [("local", ()), ("ssh", ("--check",))])
def test_neither_this_machine_nor_one_that_is_only_checked_is_touched(reboot, connection, words):
    no_shell = ("-e", "ansible_shell_executable=/bin/false")  # if it tried, this machine would stay up
    found, asked = reboot(IDS[1], connection=connection, words=(*words, *no_shell))
    assert found["event"] == ("failed" if connection == "local" else "changed")
    assert connection == "ssh" or found["message"] == "that would reboot the machine that this runs on"
    assert asked == []
