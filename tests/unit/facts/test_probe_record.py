"""The record of an earlier apply, with what became of the files and packages that it speaks of."""

import json

import pytest

from gpusetup.content import host_code

record = host_code("gpu_probe.record")
STATE = {
    "files": {"/etc/a.conf": {"sha256": "aa"}, "/etc/gone.conf": {"sha256": "bb"}, "broken": 3},
    "packages": {"build-essential": "12.9"}, "holds": ["libheld"], "brought": {"libbrought": "1"},
}  # fmt: skip


@pytest.fixture
def recorded(machine):
    return machine.put("/var/lib/gpusetup/state.json", json.dumps(STATE))


def test_files_get_the_digest_that_they_have_now_and_a_folder_without_that_look_says_nothing(recorded):
    assert "now" not in record.read(recorded.host())["files"]["/etc/a.conf"]
    host = recorded.answer("recorded-files", {"/etc/a.conf": "cc", "/etc/gone.conf": None}).host()
    files = record.read(host)["files"]
    assert files["/etc/a.conf"] == {"sha256": "aa", "now": "cc"}
    assert files["/etc/gone.conf"] == {"sha256": "bb", "now": None}


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
