"""What facts tell of a vGPU's licence: no secret and no server's name, in a capture neither."""

import hashlib
import json

from gpusetup.facts import probe

TOKENS = "/etc/nvidia/ClientConfigToken"
licence = probe.load("licence")


def test_settings_and_digests(tmp_path):
    folder = tmp_path / TOKENS.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "a.tok").write_text("secret")
    (folder / "notes.txt").write_text("no token")
    (tmp_path / "etc/nvidia/gridd.conf").write_text("#FeatureType=1\n FeatureType = 2\nServerAddress=who.example\n")
    host = probe.load("host").Recorder()
    host.inside = lambda path: str(tmp_path / path.lstrip("/"))
    told = licence.collect(host)
    assert told == {"feature": 2, "server": True, "tokens": {"a.tok": hashlib.sha256(b"secret").hexdigest()}}
    kept = json.dumps(probe.load("capture").pack(host))
    assert "who.example" not in kept
    assert not [path for path in host.files if path.endswith(".tok")]


def test_nothing_there(machine):
    assert licence.collect(machine.answer("licence", None).host()) is None
