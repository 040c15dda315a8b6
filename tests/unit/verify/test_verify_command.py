"""The command: what it prints where, its exit codes, and what it does with bad input."""

import json
import shutil
import subprocess

import pytest

from gpusetup.cli.main import main
from gpusetup.drive.signatures import sign
from tests.records import stack_document
from tests.stored import stored_rows
from tests.unit.verify.verify_documents import FIXTURES, captured

ONE, FOUR = (str(FIXTURES / f"observations/h200-{name}.json") for name in ("x1-quick", "x4-full"))
NOTHING_BROUGHT = {"packages": None, "manage_driver": True, "requirements": [], "adopted": [], "services": []}


@pytest.fixture
def kept(tmp_path):
    """Keep a document, or a text, in a file of this name."""

    def keep(document, name="seen.json"):
        text = document if isinstance(document, str) else json.dumps(document)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return keep


def told(capsys):
    return json.loads(capsys.readouterr().out)


def test_a_good_machine_is_exit_0(capsys):
    assert main(["verify", "--from", FOUR]) == 0
    out = capsys.readouterr()
    assert ("4 x NVIDIA H200" in out.out, out.err) == (True, "")


def _without_gpus(**facts):
    document = captured("h200-x1-quick")
    document["facts"] |= {"gpus": [], "driver": None, "state": None, **facts}
    document["quick"]["smi"] = {"rc": 9, "error": None, "stdout": "", "stderr": ""}
    return document


STACK = {"schema": "gpusetup/stack/1", "stack": stack_document(driver="595.91.07")}
BROUGHT = {**NOTHING_BROUGHT, "packages": {"manager": "apt", "driver": [{"name": "nvidia-open"}]}}
RECORD = {"lock": {"schema": "gpusetup/host-lock/1", "stack": STACK["stack"], "wanted": BROUGHT}}
EMPTY = {"lock": {"schema": "gpusetup/host-lock/1", "wanted": {}, "stack": {}}}


@pytest.mark.parametrize(
    ("facts", "words", "lock", "said"),
    [
        ({}, ["--gpus", "8"], None, "8 expected"),
        ({}, [], STACK, "the lock is for one"),
        ({"virtualisation": {"machine_type": "p5.48xlarge"}}, [], None, "a p5.48xlarge has 8"),
        ({"virtualisation": {"machine_type": "n2-standard-8", "events": 7}}, [], None, None),
        ({"state": RECORD}, [], None, "what was applied here is for one"),
        ({}, [], None, None),
        ({"state": EMPTY}, [], None, None),
    ],
)
def test_a_machine_that_lost_every_gpu_fails_where_one_is_expected(kept, capsys, facts, words, lock, said):
    if lock is not None:
        words = [*words, "--lock", kept(lock, "lock.json")]
    code = main(["verify", "--from", kept(_without_gpus(**facts)), "--format", "json", *words])
    answer = told(capsys)
    failed = [result for result in answer["hosts"]["localhost"] if result["verdict"] == "fail"]
    assert (code, answer["ok"]) == ((8, False) if said else (0, True))
    assert [result["id"] for result in failed] == (["gpu.count"] if said else [])
    assert said is None or said in failed[0]["text"]


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")
def test_evidence_is_judged_elsewhere_and_believed_of_known_signers_alone(tmp_path, capsys, says):
    key, seen, signers = tmp_path / "key", tmp_path / "seen.json", tmp_path / "signers"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    first = main(["verify", "--level", "quick", "--observations", str(seen), "--sign", str(key), "--format", "json"])
    proof = ["verify", "--evidence", str(seen), "--signers", str(signers), "--format", "json"]
    signers.write_text("auditor@example " + key.with_suffix(".pub").read_text())
    answer = told(capsys)["hosts"]
    assert main(proof) == first
    said = capsys.readouterr()
    assert json.loads(said.out)["hosts"] == answer
    assert "is signed by auditor@example" in said.err
    signature = seen.with_name("seen.json.sig").read_text()
    seen.write_text(seen.read_text().replace('"quick"', '"smoke"', 1))
    assert "does not belong to this evidence" in says(3, *proof)
    sign(seen, key, "gpusetup-offer")  # by the same key, for something else
    assert main(proof) == 3
    for harm in (signature.replace("A", "B"), signature[:200], ""):
        seen.with_name("seen.json.sig").write_text(harm)
        assert "the signature of this evidence is damaged" in says(3, *proof)
    seen.with_name("seen.json.sig").unlink()
    assert "Traceback" not in says(3, *proof)
    assert main([*proof, "--from", str(seen)]) == 3


def test_a_probe_without_an_answer_is_explained_and_a_crash_is_the_machines_fault(monkeypatch, says, tmp_path):
    collection = tmp_path / "ansible_collections/gpusetup/stack"
    for part in ("playbooks", "plugins", "roles/gpu_verify/files/gpu_measure"):
        (collection / part).mkdir(parents=True)
    monkeypatch.setenv("GPUSETUP_CONTENT", str(tmp_path))
    for ends, code in (("raise SystemExit('broken on purpose')", 1), ("import os; os.abort()", 8)):
        (collection / part / "observe.py").write_text(ends, encoding="utf-8")
        said = says(code, "verify", "--level", "quick")
        assert [word for word in ("GS-502", *ends.split("'")[1::2]) if word not in said] == []


@pytest.mark.parametrize(("text", "says"), stored_rows("files-that-are-no-lock.json"))
def test_a_file_that_is_no_lock_is_refused_with_what_it_is(kept, text, says, capsys):
    assert main(["verify", "--from", ONE, "--lock", kept(text, "lock.json")]) == 3
    said = capsys.readouterr()
    assert (said.out, says in " ".join(said.err.split())) == ("", True), said.err
    assert "gpusetup lock" in said.err or "make it again" in said.err


def test_a_lock_that_gpusetup_wrote_says_which_driver_it_is_for(tmp_path, capsys):
    lock = tmp_path / "gpu.lock.json"
    assert main(["lock", "driver", "--gpu", "h200", "--os", "ubuntu24.04", "--out", str(lock)]) == 0
    wanted = json.loads(lock.read_text(encoding="utf-8"))["stack"]["driver"]["version"]
    capsys.readouterr()
    code = main(["verify", "--from", ONE, "--lock", str(lock), "--format", "json"])
    found = {item["id"]: item for item in told(capsys)["hosts"]["localhost"]}["driver.version"]
    assert found["expected"] == wanted
    assert (code, found["verdict"]) in {(0, "pass"), (8, "fail")}
