"""Captures: nothing that tells one machine or its owner from another, and the same facts when looked at again."""

import base64
import json
from pathlib import Path

import pytest

from gpusetup.content import host_code
from gpusetup.errors import BadInputError
from gpusetup.facts import collect

package = host_code("gpu_probe.host")
capture = host_code("gpu_probe.capture")
HOSTS = sorted(path.parent for path in (Path(__file__).parents[2] / "hosts").glob("*/expected.json"))


@pytest.mark.parametrize("folder", HOSTS, ids=lambda folder: folder.name)
def test_a_captured_machine_captured_again_has_the_same_facts(folder, tmp_path):
    host = package.FolderRecorder(str(folder / "root"))
    before = host_code("gpu_probe.facts").collect(host)
    capture.write(json.loads(json.dumps(capture.pack(host))), str(tmp_path))
    assert host_code("gpu_probe.facts").collect(package.FolderHost(str(tmp_path))) == before


def test_this_machine_captured_has_the_same_facts(tmp_path):
    host = package.Recorder()
    before = host_code("gpu_probe.facts").collect(host, with_candidates=False)
    data = capture.pack(host)
    capture.write(data, str(tmp_path))
    after = host_code("gpu_probe.facts").collect(package.FolderHost(str(tmp_path)), with_candidates=False)
    assert after["boot"]["machine"] is None
    before["boot"].update(id=after["boot"]["id"], machine=None)
    for source, again in zip(before["packages"]["sources"], after["packages"]["sources"], strict=True):
        assert again["uri"] == source["uri"] or "mirror.invalid" in again["uri"]
        again["uri"] = source["uri"]
    assert after == before


SECRETS = """\
uuid GPU-1c5bdf16-c996-c599-c74d-ccdac51ffba5 machine 0123456789abcdef0123456789abcdef
mac 52:54:00:12:34:56 address 10.20.30.40, other 2001:db8:85a3:8d3:1319:8a2e:370:7348 local fe80::1ff:fe23:4567:890a
host gpunode17 at https://user:hunter2@repo.internal.example/debian home /home/alice/x token=abcdef
built (alice@gpunode17)
"""


def test_identities_are_taken_out():
    text = capture.redact(SECRETS, ["gpunode17"])
    secrets = "1c5bdf16 0123456789abcdef 52:54:00 10.20.30.40 85a3 fe23 gpunode17 hunter2 internal alice abcdef"
    assert [secret for secret in secrets.split() if secret in text] == []


KEPT = """580.159.04;00000000:00:06.0, NVIDIA H200, 143771, 580.159.04;9.10.2.21-1+cuda12.2;libcudnn.so.9.10.2.21;\
http://deb.debian.org/debian bookworm/main;https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64;\
0000:00:06.0;6.1.0-50-amd64;5.15.167.4-microsoft-standard-WSL2;96.00.a5.00.1a"""


@pytest.mark.parametrize("kept", KEPT.split(";"))
def test_versions_addresses_on_a_bus_and_public_mirrors_stay(kept):
    assert capture.redact(kept, ["gpunode17"]) == kept


def test_redacting_twice_changes_nothing_more():
    once = capture.redact(SECRETS, ["gpunode17"])
    assert capture.redact(once, ["gpunode17"]) == once


def recorder(**files):
    host = package.Recorder()
    host.files = dict(files)
    return host


def test_key_material_never_travels():
    host = recorder(
        **{
            "/etc/x.conf": b"-----BEGIN RSA PRIVATE KEY-----\nabc",
            "/var/lib/dkms/mok.key": b"secret",
            "/etc/y": b"fine",
        }
    )
    files = {path: base64.b64decode(text) for path, text in capture.pack(host)["files"].items()}
    assert files == {"/etc/x.conf": b"", "/var/lib/dkms/mok.key": b"", "/etc/y": b"fine"}


def test_no_path_names_a_person():
    host = recorder(**{"/home/alice/a": b""})
    host.links, host.refused = {"/home/alice/v/bin/python": "/usr/bin/python3"}, {"/home/alice/v/lib": "denied"}
    assert "alice" not in json.dumps(capture.pack(host))


def test_the_boot_and_machine_identity_are_emptied():
    host = recorder(
        **{"/proc/sys/kernel/random/boot_id": b"e02283b0-9908-4b8c-9e04-6a500a142520\n", "/etc/machine-id": b"abc"}
    )
    assert set(capture.pack(host)["files"].values()) == {""}


def test_binary_files_stay_as_they_are():
    raw = bytes(range(256))
    host = recorder(**{"/sys/bus/pci/devices/0000:01:00.0/config": raw})
    assert base64.b64decode(capture.pack(host)["files"]["/sys/bus/pci/devices/0000:01:00.0/config"]) == raw


@pytest.mark.parametrize("path", ["/../outside", "/etc/../../outside", "../outside"])
def test_a_capture_never_writes_outside_its_folder(tmp_path, path):
    data = {"schema": capture.SCHEMA, "files": {path: ""}, "folders": [], "links": {}, "denied": {}, "observations": {}}
    with pytest.raises(BadInputError, match="outside its folder"):
        collect.write_capture(data, tmp_path / "new")
    assert not (tmp_path / "outside").exists()


def test_a_link_of_a_capture_is_not_written_through(tmp_path):
    data = {
        "schema": capture.SCHEMA,
        "files": {"/etc/evil/file": base64.b64encode(b"x").decode()},
        "folders": [],
        "links": {"/etc/evil": str(tmp_path / "target")},
        "denied": {},
        "observations": {},
    }
    (tmp_path / "target").mkdir()
    collect.write_capture(data, tmp_path / "new")
    assert list((tmp_path / "target").iterdir()) == []


def test_an_occupied_folder_is_refused(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(BadInputError, match="is not empty") as refused:
        collect.capture_this_machine(tmp_path, candidates=False)
    assert refused.value.reference == "GS-303"
    assert (tmp_path / "mine").read_text() == "precious"


def test_an_answer_that_is_no_capture_is_bad_input(tmp_path):
    with pytest.raises(BadInputError, match="invalid capture"):
        collect.write_capture({"files": {}}, tmp_path / "new")
