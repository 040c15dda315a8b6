"""What facts tell of a vGPU's licence: no secret and no server's name, in a capture neither."""

import errno
import hashlib
import json
import os
from unittest.mock import Mock

from gpusetup.content import host_code

TOKENS = "/etc/nvidia/ClientConfigToken"
licence = host_code("gpu_probe.licence")


def test_settings_and_digests(tmp_path):
    folder = tmp_path / TOKENS.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "a.tok").write_text("secret")
    (folder / "notes.txt").write_text("no token")
    (tmp_path / "etc/nvidia/gridd.conf").write_text("#FeatureType=1\n FeatureType = 2\nServerAddress=who.example\n")
    host = host_code("gpu_probe.host").Recorder()
    host.inside = lambda path: str(tmp_path / path.lstrip("/"))
    told = licence.collect(host)
    assert told == {"feature": 2, "server": True, "tokens": {"a.tok": hashlib.sha256(b"secret").hexdigest()}}
    kept = json.dumps(host_code("gpu_probe.capture").pack(host))
    assert "who.example" not in kept
    assert not [path for path in host.files if path.endswith(".tok")]


def test_a_folder_of_tokens_that_only_root_can_list(monkeypatch):
    host = host_code("gpu_probe.host").LiveHost()
    host.inside = lambda path: "/nowhere" + path
    monkeypatch.setattr(os, "listdir", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    assert licence.collect(host) is None
    assert host.unreadable == {"licence": f"{TOKENS}: Permission denied"}


def test_nothing_there(machine):
    assert licence.collect(machine.answer("licence", None).host()) is None
