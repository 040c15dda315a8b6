"""The command: what it prints where, its exit codes, and what it does with bad input."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from gpusetup.cli.main import main
from gpusetup.drive.signatures import sign
from tests.records import stack_document
from tests.unit.verify.verify_documents import FIXTURES, captured, drop_gpu

OBSERVED = FIXTURES / "observations"
NOTHING_BROUGHT = {"packages": None, "manage_driver": True, "requirements": [], "adopted": [], "services": []}


def test_a_good_machine_is_exit_0(capsys):
    assert main(["verify", "--from", str(OBSERVED / "h200-x4-full.json")]) == 0
    out = capsys.readouterr()
    assert "4 x NVIDIA H200" in out.out
    assert out.err == ""


def test_a_failed_check_is_exit_8_and_json_all_the_same(tmp_path, capsys):
    document = captured("h200-x8-quick")
    drop_gpu(document, 1)
    path = tmp_path / "seen.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert main(["verify", "--from", str(path), "--format", "json"]) == 8
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["hosts"]["localhost"][0]["id"]


def test_the_number_of_gpus_can_be_asked_for(capsys):
    assert main(["verify", "--from", str(OBSERVED / "h200-x8-quick.json"), "--gpus", "8"]) == 0
    assert main(["verify", "--from", str(OBSERVED / "h200-x4-full.json"), "--gpus", "8"]) == 8


def _without_gpus(**facts):
    document = captured("h200-x1-quick")
    document["facts"] = {**document["facts"], "gpus": [], "driver": None, "state": None, **facts}
    document["quick"] = {**document["quick"], "smi": {"rc": 9, "error": None, "stdout": "", "stderr": ""}}
    return document


RECORD = {
    "lock": {
        "schema": "gpusetup/host-lock/1",
        "stack": stack_document(driver="595.91.07"),
        "wanted": {**NOTHING_BROUGHT, "packages": {"manager": "apt", "driver": [{"name": "nvidia-open"}]}},
    }
}


@pytest.mark.parametrize(
    ("facts", "words", "lock", "said"),
    [
        ({}, ["--gpus", "8"], None, "8 expected"),
        ({}, [], {"schema": "gpusetup/stack/1", "stack": stack_document(driver="595.91.07")}, "the lock is for one"),
        ({"virtualisation": {"machine_type": "p5.48xlarge"}}, [], None, "a p5.48xlarge has 8"),
        ({"virtualisation": {"machine_type": "n2-standard-8", "events": 7}}, [], None, None),
        ({"state": RECORD}, [], None, "what was applied here is for one"),
        ({}, [], None, None),
        ({"state": {"lock": {"schema": "gpusetup/host-lock/1", "wanted": {}, "stack": {}}}}, [], None, None),
    ],
)
def test_a_machine_that_lost_every_gpu_fails_where_one_is_expected(tmp_path, capsys, facts, words, lock, said):
    seen, locked = tmp_path / "seen.json", tmp_path / "lock.json"
    seen.write_text(json.dumps(_without_gpus(**facts)), encoding="utf-8")
    if lock is not None:
        locked.write_text(json.dumps(lock), encoding="utf-8")
        words = [*words, "--lock", str(locked)]
    code = main(["verify", "--from", str(seen), "--format", "json", *words])
    answer = json.loads(capsys.readouterr().out)
    failed = [result for result in answer["hosts"]["localhost"] if result["verdict"] == "fail"]
    assert (code, answer["ok"]) == ((8, False) if said else (0, True))
    assert [result["id"] for result in failed] == (["gpu.count"] if said else [])
    assert said is None or said in failed[0]["text"]


def test_a_lock_says_what_should_be_there(tmp_path):
    lock = tmp_path / "lock.json"
    lock.write_text(
        json.dumps({"schema": "gpusetup/stack/1", "stack": stack_document(driver="595.91.07")}), encoding="utf-8"
    )
    assert main(["verify", "--from", str(OBSERVED / "h200-x1-quick.json"), "--lock", str(lock)]) == 8


def test_a_file_is_written_and_the_summary_goes_to_standard_error(tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["verify", "--from", str(OBSERVED / "h200-x1-full.json"), "--format", "html", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "localhost: warn (1 warn, " in said.err
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_baseline_is_made_kept_and_renewed_when_asked(tmp_path, capsys):
    baseline, seen = tmp_path / "baseline.json", tmp_path / "seen.json"
    arguments = ["verify", "--from", str(seen), "--baseline", str(baseline)]
    document = captured("h200-x1-full")
    seen.write_text(json.dumps(document), encoding="utf-8")
    assert main(arguments) == 0
    first = baseline.read_text(encoding="utf-8")
    document["sections"]["memory"]["0"]["triad"] = [3580.0, 3580.0]
    seen.write_text(json.dumps(document), encoding="utf-8")
    assert main(arguments) == 8
    assert "its last good run" in " ".join(capsys.readouterr().out.split())
    assert baseline.read_text(encoding="utf-8") == first, "a bad run is never kept"
    document["sections"]["memory"]["0"]["triad"] = [4200.0, 4200.0]
    seen.write_text(json.dumps(document), encoding="utf-8")
    assert main([*arguments, "--update-baseline"]) == 0
    assert baseline.read_text(encoding="utf-8") != first


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from", "/nowhere.json"],
        ["--only", "a,b"],
        ["--python", "python3"],
        ["--level", "stress", "--minutes", "0"],
        ["--lock", "/nowhere.json", "--from", str(OBSERVED / "h200-x1-quick.json")],
        ["/nowhere.ini"],
    ],
)
def test_bad_input_is_exit_3_with_a_reference(arguments, capsys):
    assert main(["verify", *arguments]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "[GS-" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"hosts": []}', '{"schema": "gpusetup/facts/1"}', '{"schema": "other", "level": "quick"}']
)
def test_a_file_without_observations_is_refused(tmp_path, text, capsys):
    path = tmp_path / "seen.json"
    path.write_text(text, encoding="utf-8")
    assert main(["verify", "--from", str(path)]) == 3
    assert "[GS-50" in capsys.readouterr().err


def test_observations_of_an_older_form_are_refused_plainly(tmp_path, capsys):
    path = tmp_path / "seen.json"
    path.write_text(json.dumps(captured("h200-x1-quick") | {"schema": "gpusetup/observations/1"}), encoding="utf-8")
    assert main(["verify", "--from", str(path)]) == 3
    said = capsys.readouterr().err
    assert "old format" in said
    assert "gpusetup verify --observations" in said


def test_a_mangled_document_fails_checks_and_never_the_program(tmp_path, capsys):
    document = captured("h200-x1-full")
    document["sections"]["memory"] = {"0": {"copy": "fast"}}
    document["quick"]["smi"]["stdout"] = document["quick"]["smi"]["stdout"][:5000]
    document["facts"]["gpus"] = "none"
    path = tmp_path / "seen.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert main(["verify", "--from", str(path), "--format", "json"]) in (0, 8)
    json.loads(capsys.readouterr().out)


def test_observations_can_be_judged_again(tmp_path):
    """What one run wrote, another one reads: on this machine, GPU or not."""
    seen, report = tmp_path / "seen.json", tmp_path / "report.json"
    first = main(["verify", "--level", "quick", "--observations", str(seen), "--format", "json", "--out", str(report)])
    again = tmp_path / "again.json"
    assert main(["verify", "--from", str(seen), "--format", "json", "--out", str(again)]) == first
    hosts = [json.loads(path.read_text(encoding="utf-8"))["hosts"] for path in (report, again)]
    assert hosts[0] == hosts[1]


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")
def test_evidence_is_judged_elsewhere_and_believed_of_known_signers_alone(tmp_path, capsys):
    key, seen, signers = tmp_path / "key", tmp_path / "seen.json", tmp_path / "signers"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    first = main(["verify", "--level", "quick", "--observations", str(seen), "--sign", str(key), "--format", "json"])
    proof = ["verify", "--evidence", str(seen), "--signers", str(signers), "--format", "json"]
    signers.write_text("auditor@example " + key.with_suffix(".pub").read_text())
    told = json.loads(capsys.readouterr().out)["hosts"]
    assert main(proof) == first
    said = capsys.readouterr()
    assert json.loads(said.out)["hosts"] == told
    assert "is signed by auditor@example" in said.err
    signature = seen.with_name("seen.json.sig").read_text()
    seen.write_text(seen.read_text().replace('"quick"', '"smoke"', 1))
    assert main(proof) == 3
    assert "does not belong to this evidence" in capsys.readouterr().err
    sign(seen, key, "gpusetup-offer")  # by the same key, for something else
    assert main(proof) == 3
    for harm in (signature.replace("A", "B"), signature[:200], ""):
        seen.with_name("seen.json.sig").write_text(harm)
        assert main(proof) == 3
        assert "the signature of this evidence is damaged" in capsys.readouterr().err
    seen.with_name("seen.json.sig").unlink()
    assert main(proof) == 3
    assert "Traceback" not in capsys.readouterr().err
    for half in (["--evidence", str(seen)], ["--sign", str(key)], ["--from", str(seen), "--signers", str(signers)]):
        assert main(["verify", *half]) == 3
    assert main([*proof, "--from", str(seen)]) == 3


def test_a_probe_that_cannot_be_started_is_explained(monkeypatch, capsys, tmp_path):
    collection = tmp_path / "ansible_collections/gpusetup/stack"
    for part in ("playbooks", "plugins", "roles/gpu_verify/files/gpu_measure"):
        (collection / part).mkdir(parents=True)
    files = collection / "roles/gpu_verify/files/gpu_measure"
    (files / "observe.py").write_text("raise SystemExit('broken on purpose')", encoding="utf-8")
    monkeypatch.setenv("GPUSETUP_CONTENT", str(tmp_path))
    assert main(["verify", "--level", "quick"]) == 8
    said = capsys.readouterr().err
    assert "GS-502" in said
    assert "broken on purpose" in said


def test_help_imports_no_heavy_module():
    program = "import sys; from gpusetup.cli.main import main\ntry: main(['verify', '--help'])\nexcept SystemExit: pass\nprint([name for name in ('rich', 'jinja2', 'requests', 'msgspec', 'ansible') if name in sys.modules])"
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ), timeout=60, check=False
    )
    assert finished.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not valid JSON"),
        ("[]", "JSON with an unexpected structure"),
        ("7", "JSON with an unexpected structure"),
        ("{}", "its schema is None"),
        ('{"schema": "gpusetup/plan/1", "hosts": {}}', "its schema is 'gpusetup/plan/1'"),
        ('{"schema": "gpusetup/stack/1", "ok": false}', "its schema is 'gpusetup/stack/1'"),
        ('{"schema": "gpusetup/stack/1", "stack": {"driver": {"version": 7}}}', "`$.driver.version`"),
        ('{"schema": "gpusetup/host-lock/1", "stack": []}', "`$.stack`"),
        ('{"schema": "gpusetup/lock/1", "stack": {}}', "[GS-341]"),
    ],
)
def test_a_file_that_is_no_lock_is_refused_with_what_it_is(tmp_path, text, says, capsys):
    lock = tmp_path / "lock.json"
    lock.write_text(text, encoding="utf-8")
    assert main(["verify", "--from", str(OBSERVED / "h200-x1-quick.json"), "--lock", str(lock)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert says in " ".join(said.err.split())
    assert "gpusetup lock" in said.err or "make it again" in said.err


def test_the_lock_that_a_host_keeps_and_an_answer_of_resolve_are_locks(tmp_path, capsys):
    lock = tmp_path / "lock.json"
    for schema, more in (("gpusetup/stack/1", {}), ("gpusetup/host-lock/1", {"key": "k", "wanted": NOTHING_BROUGHT})):
        for version, code in (("580.159.04", 0), ("595.91.07", 8)):
            told = {"schema": schema, "stack": stack_document(driver=version), **more}
            lock.write_text(json.dumps(told), encoding="utf-8")
            assert main(["verify", "--from", str(OBSERVED / "h200-x1-quick.json"), "--lock", str(lock)]) == code, schema


def test_observations_that_were_written_before_keep_their_time(capsys):
    from datetime import datetime, timezone

    path = OBSERVED / "h200-x4-full.json"
    kept = json.loads(path.read_text())
    document = next(iter(kept["hosts"].values())) if "hosts" in kept else kept
    main(["verify", "--from", str(path), "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    then = datetime.fromtimestamp(document["started"], timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (told["started"], told["seconds"]) == (then, round(document["seconds"], 3))


def test_observations_whose_time_is_mangled_are_judged_all_the_same(tmp_path, capsys):
    kept = json.loads((OBSERVED / "h200-x4-full.json").read_text())
    documents = kept["hosts"].values() if "hosts" in kept else [kept]
    for document in documents:
        document["started"] = 1e300
    path = tmp_path / "seen.json"
    path.write_text(json.dumps(kept))
    assert main(["verify", "--from", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_a_lock_that_gpusetup_wrote_says_which_driver_it_is_for(tmp_path, capsys):
    lock = tmp_path / "gpu.lock.json"
    asked = ["driver", "--gpu", "h200", "--os", "ubuntu24.04"]
    assert main(["lock", *asked, "--out", str(lock)]) == 0
    wanted = json.loads(lock.read_text(encoding="utf-8"))["stack"]["driver"]["version"]
    capsys.readouterr()
    seen = str(OBSERVED / "h200-x1-quick.json")
    code = main(["verify", "--from", seen, "--lock", str(lock), "--format", "json"])
    found = {item["id"]: item for item in json.loads(capsys.readouterr().out)["hosts"]["localhost"]}
    assert found["driver.version"]["expected"] == wanted
    assert (code, found["driver.version"]["verdict"]) in {(0, "pass"), (8, "fail")}
