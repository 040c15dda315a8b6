"""Reading a machine or a folder that stands in for one: its record, its licence, and commands that each have a deadline."""

import errno
import hashlib
import json
import os
from unittest.mock import Mock

import pytest

from gpusetup.content import host_code


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../etc/passwd", "/proc/self/environ"])
def test_no_link_leads_out_of_the_root(machine, target):
    host = machine.link("/etc/escape", target).link("/outside", "/").host()
    assert (host.read("/etc/escape"), host.read("/outside/etc/passwd"), host.names("/outside/proc")) == (None, None, [])


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


commands = host_code("gpu_probe.commands")


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
