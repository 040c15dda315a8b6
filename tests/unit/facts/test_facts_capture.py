"""Captures tell no machine from another and read as it did; a fleet has each host's facts or its own failure."""

import base64
import json
from pathlib import Path

import pytest

from gpusetup.content import host_code
from gpusetup.drive.events import Failure, Track
from gpusetup.drive.playbook import PlaybookRun
from gpusetup.drive.runner import Finished
from gpusetup.errors import BadInputError, Exit, gravest
from gpusetup.facts import collect, fleet
from tests.refusals import refused

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


def test_identities_are_taken_out_once():
    text = capture.redact(SECRETS, ["gpunode17"])
    secrets = "1c5bdf16 0123456789abcdef 52:54:00 10.20.30.40 85a3 fe23 gpunode17 hunter2 internal alice abcdef"
    assert [secret for secret in secrets.split() if secret in text] == []
    assert capture.redact(text, ["gpunode17"]) == text


CONFIG = "/sys/bus/pci/devices/0000:01:00.0/config"


@pytest.mark.parametrize(
    ("path", "content", "travels"),
    [
        ("/etc/x.conf", b"-----BEGIN RSA PRIVATE KEY-----\nabc", b""),
        ("/var/lib/dkms/mok.key", b"secret", b""),
        ("/proc/sys/kernel/random/boot_id", b"e02283b0-9908-4b8c-9e04-6a500a142520\n", b""),
        ("/etc/machine-id", b"abc", b""),
        (CONFIG, bytes(range(256)), bytes(range(256))),  # binary files stay as they are
    ],
)
def test_no_key_and_no_identity_of_boot_or_machine_travels(path, content, travels):
    host = package.Recorder()
    host.files = {path: content}
    files = {path: base64.b64decode(text) for path, text in capture.pack(host)["files"].items()}
    assert files == {path: travels}


def test_no_path_names_a_person():
    host = package.Recorder()
    host.files = {"/home/alice/a": b""}
    host.links, host.refused = {"/home/alice/v/bin/python": "/usr/bin/python3"}, {"/home/alice/v/lib": "denied"}
    assert "alice" not in json.dumps(capture.pack(host))


EMPTY = {"schema": capture.SCHEMA, "files": {}, "folders": [], "links": {}, "denied": {}, "observations": {}}


@pytest.mark.parametrize("path", ["/../outside", "/etc/../../outside", "../outside"])
def test_a_capture_never_writes_outside_its_folder(tmp_path, path):
    with pytest.raises(BadInputError, match="outside its folder"):
        collect.write_capture(EMPTY | {"files": {path: ""}}, tmp_path / "new")
    assert not (tmp_path / "outside").exists()


def test_a_link_of_a_capture_is_not_written_through(tmp_path):
    (tmp_path / "target").mkdir()
    files = {"/etc/evil/file": base64.b64encode(b"x").decode()}
    collect.write_capture(EMPTY | {"files": files, "links": {"/etc/evil": str(tmp_path / "target")}}, tmp_path / "new")
    assert list((tmp_path / "target").iterdir()) == []


def test_an_occupied_folder_and_an_answer_that_is_no_capture_are_refused(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with refused(BadInputError, "GS-303", match="is not empty"):
        collect.capture_this_machine(tmp_path, candidates=False)
    assert (tmp_path / "mine").read_text() == "precious"
    with pytest.raises(BadInputError, match="invalid capture"):
        collect.write_capture({"files": {}}, tmp_path / "new")


CAPTURE = Path(__file__).parents[2] / "hosts/debian12-t4-open/root"
TIMED_OUT = "ssh: connect to host\n  10.0.0.9 port 22: timed out"
HERE = "Look at the host"


def read(**answers):
    """What is made of each host's data or failure, or of both."""
    track = Track()
    for name, (data, failure) in answers.items():
        progress = track.host(name)
        progress.data.update({} if data is None else {fleet.ACTION: data})
        progress.failure = failure
    return fleet.read(PlaybookRun("facts", Finished((), 0, "", "", 1.0), track))


@pytest.fixture(scope="module")
def good():
    found = host_code("gpu_probe.facts").collect(host_code("gpu_probe.host").open_host(str(CAPTURE)))
    return {"changed": False, "facts": json.loads(json.dumps(found))}


def test_every_host_has_facts_or_a_failure(good):
    told = read(
        good=(good, None),
        gone=(None, Failure(HERE, TIMED_OUT, True)),
        key=(None, Failure(HERE, "Host key verification failed.", True)),
        sudo=(None, Failure(HERE, "Missing sudo password")),
        python=({"msg": "x"}, Failure(HERE, "/usr/bin/python3: not found")),
        old=({"facts": {"os": {}}}, None),
        silent=(None, None),
    ).facts
    assert (set(told.hosts), told.ok) == ({"good"}, False)
    assert {name: (item.reference, item.exit) for name, item in told.failures.items()} == {
        "gone": ("GS-308", 6), "key": ("GS-308", 6), "sudo": ("GS-309", 5), "python": ("GS-309", 5), "old": ("GS-304", 3),
        "silent": ("GS-309", 6),
    }  # fmt: skip
    for name, hint in (("gone", "-m ping"), ("key", "gpusetup fleet known-hosts"), ("sudo", "-K")):
        assert hint in told.failures[name].hint
    assert "\n" not in told.failures["gone"].message
    assert gravest([Exit(item.exit) for item in told.failures.values()]) is Exit.UNREACHABLE
