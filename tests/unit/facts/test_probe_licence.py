"""What facts tell of a vGPU's licence: no secret and no server's name, in a capture neither."""

import errno
import hashlib
import json
import os
from unittest.mock import Mock

from gpusetup.content import host_code

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
