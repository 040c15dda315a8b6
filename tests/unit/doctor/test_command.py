"""The command as people meet it: odd logs, its own references, odd places to write to, nothing secret in what it tells."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gpusetup.cli.main import main
from gpusetup.doctor.other_trouble import outside
from gpusetup.doctor.references import nearest, reference_in
from tests.unit.doctor.score import entries

ROOT = Path(__file__).resolve().parents[3]
HOSTS = ROOT / "tests/hosts"
HEALTHY = HOSTS / "ubuntu24.04-h200-keep" / "root"
XID = "quiet\nNVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    "raw",
    [
        XID.encode(), gzip.compress(XID.encode()), XID.encode("utf-16"), XID.encode("utf-16-le"),
        XID.encode("utf-16-be"), gzip.compress(XID.encode("utf-16")), b"\xef\xbb\xbf" + XID.encode(),
        XID.replace("\n", "\r\n").encode(), bytes(range(256)) * 40 + b"\n" + XID.encode(),
    ],
    ids=["plain", "gzip", "utf-16", "utf-16-le", "utf-16-be", "gzip of utf-16", "mark", "crlf", "binary"],
)  # fmt: skip
def test_a_log_is_read_in_whatever_form_it_comes(raw, tmp_path, printed):
    path = tmp_path / "log"
    path.write_bytes(raw)
    found = printed(0, "doctor", "--text", path)["findings"][0]
    assert (found["cause"], found["count"]) == ("gpu-fallen-off-bus", 1)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("syslog", XID.encode()), ("syslog", gzip.compress(XID.encode())), ("syslog", XID.encode("utf-16")),
        ("train.log", XID.splitlines()[1].partition(":")[2].encode()),
    ],
    ids=["text", "gzip", "utf-16", "by its name"],
)  # fmt: skip
def test_a_log_is_known_by_its_lines_or_its_name(name, raw, tmp_path, says):
    path = tmp_path / name
    path.write_bytes(raw)
    assert "[gpu-fallen-off-bus]" in says(0, "doctor", path)


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("the output", "CUDA error: out of memory\n", "if it is a log: gpusetup doctor --text '{}'"),
        ("smi.xml", "<nvidia_smi_log>\n</nvidia_smi_log>\n", "give its text: nvidia-smi -q | gpusetup doctor -"),
    ],
)
def test_a_file_in_another_form_is_told_how_it_is_read(name, text, hint, tmp_path, doctor):
    path = tmp_path / name
    path.write_text(text)
    assert f"hint: {hint.format(path)}" in doctor(3, str(path))


@pytest.mark.parametrize(
    ("text", "old", "new", "found"), [(one["text"], *change) for one in entries("outputs") for change in one["changes"]]
)
def test_the_output_of_a_program_is_judged_and_hides_no_other_trouble(text, old, new, found, doctor):
    """As hosts printed it, with one change."""
    assert old in text
    text = text.replace(old, new, 1)
    assert found in " ".join(doctor(3 if found == "not recognised:" else 0, "-", given=text).split())
    assert not outside(f"{text}\nnvidia: frobnication failed: 42")


@pytest.mark.parametrize("name", ["nosuch.ini", "nosuch.log", "inventory/nosuch.yml", "uv.lock"])
def test_a_file_that_is_missing_is_no_message(name, says):
    assert f"no such file: {name}" in says(3, "doctor", name)


@pytest.mark.parametrize("line", ["CUDA error: out of memory{}", "ssh: connect to host {}: Connection refused"])
def test_what_a_log_says_cannot_steer_the_terminal(line, capsys):
    assert main(["doctor", line.format("\x1b]0;owned\x07\x9b2J\u202e")]) == 0
    assert not set(capsys.readouterr().out) & set("\x1b\x07\x9b\u202e")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["doctor", ""], "the message is empty"),
        (["doctor", "--text", "/"], "Is a directory"),
        (["doctor", "--root", "/nowhere"], "folder does not exist"),
        (["doctor", "--root", str(HEALTHY), "--bundle", "/proc/nowhere/b"], "cannot write the bundle"),
        (["doctor", "--root", str(HEALTHY), "--bundle", "/dev/full"], "No space left"),
        (["doctor", "Xid 79", "--out", "/dev/full"], "No space left"),
    ],
)
def test_what_cannot_be_done_is_said(arguments, words, says):
    told = says(3, *arguments)
    assert words in told
    assert "GS-" in told


def test_no_secret_gets_into_the_bundle(tmp_path, capsys):
    root = tmp_path / "root"
    shutil.copytree(HEALTHY, root, symlinks=True)
    secrets = {
        "var/log/dmesg": "login: password=planted-one-1\nhttp://u:planted-two-2@proxy/\n",
        "etc/docker/daemon.json": '{"auths": {"token": "planted-three-3"}}',
        "etc/environment": "HF_TOKEN=planted-four-4\nLD_LIBRARY_PATH=/opt/x\n",
        "etc/modprobe.d/x.conf": "# api_key = planted-five-5\n",
        "var/log/nvidia-installer.log": "-----BEGIN PRIVATE KEY-----\nplanted-six-6\n-----END PRIVATE KEY-----\n",
        "var/lib/dkms/nvidia/580.159.04/build/make.log": "export AWS_SECRET_ACCESS_KEY=planted-seven-7\n",
    }
    for name, text in secrets.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    bundle = tmp_path / "b.tar.gz"
    assert main(["doctor", "--root", str(root), "--bundle", str(bundle)]) == 0
    told = "".join(capsys.readouterr())
    assert "planted" not in told
    assert bundle.stat().st_mode & 0o777 == 0o600
    with tarfile.open(bundle) as archive:
        members = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}
    assert sum("(masked)" in text or "(private key)" in text for text in members.values()) >= 4
    assert "LD_LIBRARY_PATH=/opt/x" in members["gpusetup-bundle/environment.txt"]
    assert [name for name, text in members.items() if "planted" in text] == []
    listed = [line.split()[1] for line in members.pop("gpusetup-bundle/MANIFEST").splitlines()]
    assert sorted(members) == [f"gpusetup-bundle/{name}" for name in listed]
    assert all(name in told for name in listed)


def test_the_environments_own_frameworks_are_never_imported(tmp_path):
    site = tmp_path / "venv/lib/python3.12/site-packages"
    for name in ("torch", "tensorflow", "jax", "cupy", "numpy"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
    (site / "torch-1.10.0+cu113.dist-info").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site), "VIRTUAL_ENV": str(tmp_path / "venv")}
    argv = [sys.executable, "-m", "gpusetup", "doctor", "--format", "json"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in {0, 8}, done.stderr
    assert json.loads(done.stdout)["hosts"]["localhost"]["ruled"]
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("arguments", "ok"),
    [
        (["Xid 79"], True),
        (["nothing that anybody knows"], False),
        (["GS-324"], True),
        (["--root", str(HEALTHY)], True),
        (["--root", str(HOSTS / "ubuntu24.04-gtx1080ti-rtx5090-nostack" / "root")], False),
    ],
)
def test_every_document_says_whether_the_question_was_answered_and_the_host_is_well(arguments, ok, capsys):
    code = main(["doctor", *arguments, "--format", "json"])
    assert json.loads(capsys.readouterr().out)["ok"] is ok is (code == 0)


def used():
    files = [path for folder in ("gpusetup", "gpusetup_fleet", "plugins") for path in (ROOT / folder).rglob("*.py")]
    files.append(ROOT / "gpusetup/bootstrap/instance/first-stage")
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return sorted(set(re.findall(r"[\"'](GS-\d{3})[\"']", text)))


CATALOGUE = ROOT / "gpusetup/references.json"


def listed():
    return json.loads(CATALOGUE.read_text(encoding="utf-8"))["references"]


def test_every_reference_that_is_raised_is_in_the_catalogue_and_no_other():
    assert list(listed()) == used(), "gpusetup/references.json has each that is raised, in the order of the numbers"
    assert all(entry["title"] and entry["fix"] for entry in listed().values())


def test_an_xid_is_known_however_it_is_given(doctor):
    for arguments in (("Xid 79",), ("--explain", "Xid 79"), ("-",)):
        assert "fell off the PCI bus" in doctor(0, *arguments, given="Xid 79\n")


@pytest.mark.parametrize(("terminal", "wide"), [(True, ["kubectl"]), (False, ["Either ", "kubectl"])])
def test_the_page_of_a_cause_is_as_wide_as_the_terminal_and_whole_in_a_file(doctor, monkeypatch, terminal, wide):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    page = doctor(0, "--explain", "k8s-insufficient-gpu")
    assert [row[:7] for row in page.splitlines() if len(row) > 80] == wide


@pytest.mark.parametrize(("typed", "meant"), [("GS-999", "GS-499"), ("GS-3244", "GS-324"), ("gs-325x", "")])
def test_a_reference_that_does_not_exist_gets_the_nearest(doctor, typed, meant):
    for arguments in ((typed,), ("--explain", typed)):
        assert meant in doctor(3, *arguments)
    assert not meant or meant in nearest(reference_in(typed))
