"""Reading a machine or a folder that stands in for one: its record, its licence, and commands that each have a deadline."""

import errno
import hashlib
import json
import os
import subprocess
from unittest.mock import Mock, mock_open

import pytest

from gpusetup.content import host_code
from tests.programs import gone

package = host_code("gpu_probe.host")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../etc/passwd", "/proc/self/environ"])
def test_no_link_leads_out_of_the_root(machine, target):
    host = machine.link("/etc/escape", target).link("/outside", "/").host()
    assert (host.read("/etc/escape"), host.read("/outside/etc/passwd"), host.names("/outside/proc")) == (None, None, [])


def test_denied_in_a_capture_stays_denied(machine):
    machine.put("/gpusetup-capture.json", '{"denied": {"/boot/grub/grubenv": "Permission denied"}}')
    host = package.FolderHost(str(machine.root))
    assert host.read("/boot/grub/grubenv", "kernel.next") is None
    assert host.unreadable == {"kernel.next": "Permission denied"}


TOKENS = "/etc/nvidia/ClientConfigToken"
licence = host_code("gpu_probe.licence")


def test_settings_and_digests(machine):
    machine.put(f"{TOKENS}/a.tok", "secret").put(f"{TOKENS}/notes.txt", "no token")
    machine.put("/etc/nvidia/gridd.conf", "#FeatureType=1\n FeatureType = 2\nServerAddress=who.example\n")
    host = machine.live("Recorder")
    tokens = {"a.tok": hashlib.sha256(b"secret").hexdigest()}
    assert licence.collect(host) == {"feature": 2, "server": True, "tokens": tokens}
    assert "who.example" not in json.dumps(host_code("gpu_probe.capture").pack(host))
    assert not [path for path in host.files if path.endswith(".tok")]


def test_a_folder_of_tokens_that_only_root_can_list_and_nothing_there(machine, monkeypatch):
    assert licence.collect(machine.answer("licence", None).host()) is None
    host = machine.live()
    monkeypatch.setattr(os, "listdir", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    assert licence.collect(host) is None
    assert host.unreadable == {"licence": f"{TOKENS}: Permission denied"}


record = host_code("gpu_probe.record")
STATE = {
    "files": {"/etc/a.conf": {"sha256": "aa"}, "/etc/gone.conf": {"sha256": "bb"}, "broken": 3},
    "packages": {"build-essential": "12.9"}, "holds": ["libheld"], "brought": {"libbrought": "1"},
}  # fmt: skip


@pytest.fixture
def recorded(machine):
    return machine.put("/var/lib/gpusetup/state.json", json.dumps(STATE))


def test_a_live_host_hashes_and_keeps_the_content_to_itself(recorded):
    host = recorded.put("/etc/a.conf", "secret\n").live("Recorder")
    files = record.read(host)["files"]
    assert files["/etc/a.conf"]["now"] == "b37e50cedcd3e3f1ff64f4afc0422084ae694253cf399326868e07a35f4a45fb"
    assert files["/etc/gone.conf"]["now"] is None
    assert "secret" not in json.dumps(host_code("gpu_probe.capture").pack(host))


def test_packages_on_record_count_whatever_they_are_called(machine):
    names = host_code("gpu_probe.record").names(STATE)
    assert names == {"build-essential", "libheld", "libbrought"}
    for damaged in (None, {"packages": 5, "holds": [{}], "brought": True}):
        assert host_code("gpu_probe.record").names(damaged) == set()
    stanza = "Package: {0}\nStatus: hold ok installed\nArchitecture: all\nVersion: 1\n\n"
    text = "".join(stanza.format(name) for name in ("build-essential", "libheld", "other"))
    found = host_code("gpu_probe.packages").collect(machine.put("/var/lib/dpkg/status", text).host(), "debian", names)
    assert sorted(found["installed"]) == ["build-essential", "libheld"]
    assert found["held"] == ["build-essential", "libheld"]


commands = host_code("gpu_probe.commands")


@pytest.mark.parametrize(
    ("argv", "variable", "answer"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 3"], None, {"rc": 3, "out": "out\n", "err": "err\n"}),
        (["no-such-command-at-all"], None, {"rc": None, "why": "missing"}),
        (["ls", "/"], ("PATH", "/nowhere"), {"rc": 0}),  # programs of the sbin folders are found
        (["sh", "-c", "echo $LC_ALL"], ("LC_ALL", "de_DE.UTF-8"), {"out": "C\n"}),  # answers are in English
        (["sh", "-c", "echo $SOMETHING"], ("SOMETHING", "kept"), {"out": "kept\n"}),  # the rest is kept
        (["printf", "\\377x"], None, {"out": "\ufffdx"}),  # bytes that are no text
        (["cat"], None, {"rc": 0, "out": "", "err": ""}),  # standard input is not ours
    ],
)
def test_what_a_command_answers(monkeypatch, argv, variable, answer):
    if variable:
        monkeypatch.setenv(*variable)
    found = commands.run(argv, 5)
    assert found | answer == found


def test_a_hanging_command_is_ended_with_its_children(tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! > {pids}; echo $$ >> {pids}; wait"
    answer = commands.run(["sh", "-c", script], 0.5)
    assert answer["rc"] is None
    assert "no answer within 0.5 s" in answer["why"]
    for pid in pids.read_text().split():
        assert gone(int(pid)), f"process {pid} was left behind"


@pytest.mark.parametrize(("state", "ends"), [("R", True), ("D", False)])
def test_a_killed_program_is_stuck_only_in_the_kernel(monkeypatch, state, ends):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process, monkeypatch.context() as busy:
        busy.setattr(process, "wait", Mock(side_effect=subprocess.TimeoutExpired("sleep", 2)))
        busy.setattr("builtins.open", mock_open(read_data=f"7 (sleep) {state} 1".encode()))
        assert commands.kill(process) is ends


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2hunter2", "NGC_API_KEY: hunter2hunter2", '{"token": "hunter2hunter2"}',
        "Authorization: Bearer hunter2hunter2", "proxy http://user:hunter2hunter2@proxy:3128/",
        "export HF_TOKEN=hunter2hunter2", "AWS_SECRET_ACCESS_KEY='hunter2hunter2'", "hf_hunter2hunter2hunter2",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2hunter2\n-----END RSA PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_secrets_are_masked(text):
    assert "hunter2hunter2" not in commands.mask(text)
