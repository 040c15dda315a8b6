"""What a command tells people it tells programs too, in a document that its schema takes; the schema refuses others."""

import json
import re
import shlex
from pathlib import Path

import jsonschema
import pytest

import gpusetup
from gpusetup.cli import timers
from gpusetup.cli.commands import COMMANDS, GROUPS, load_command
from gpusetup.cli.export import schema_of
from gpusetup.matrix.load import matrix
from gpusetup.model.documents import documents
from gpusetup.model.request import Request
from gpusetup.model.settings import Settings
from gpusetup.plan.lock import lock_of
from gpusetup.resolve.api import resolve
from gpusetup_fleet.supply import choosing
from gpusetup_fleet.supply.fetching import Wanted
from gpusetup_fleet.supply.root import Entry
from tests.property.test_command_line import run, unstated
from tests.stored import stored_rows

ROOT = Path(__file__).resolve().parents[2]
HOST = str(ROOT / "tests" / "hosts" / "ubuntu24.04-h200x2-keep" / "root")
KEPT_ELSEWHERE = {
    "baseline", "bundle-since", "capture", "causes", "companions", "cuda-errors", "matrix-package", "observations",
    "observations-of-hosts", "status-names", "sxid",
}  # fmt: skip
"""Documents between the parts of gpusetup: nothing for other programs to rely on."""


def printed(*argv):
    _, out, _ = run([*argv, "--format", "json"])
    return json.loads(out)


def name_of(document):
    return str(document["schema"].split("/")[1])


def test_what_is_printed_of_hosts_fits(tmp_path):
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(printed("facts", "--root", HOST)))
    for argv in (
        ("plan",),
        ("resolve", "--from", str(facts)),
        ("verify", "--from", str(ROOT / "tests/fixtures/observations/h200-x2-full.json")),
        ("export", "monitoring", "--out", str(tmp_path / "monitoring")),
    ):
        document = printed(*argv)
        assert name_of(document) in documents()
        jsonschema.validate(document, schema_of(name_of(document)))


@pytest.mark.parametrize("name", documents())
def test_a_schema_is_a_schema_and_refuses_what_does_not_belong(name):
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": f"gpusetup/{name}/1", "surprise": 1}, schema)


def test_every_document_has_a_schema():
    sources = "".join(path.read_text() for path in Path(gpusetup.__file__).parents[1].glob("gpusetup*/**/*.py"))
    named = set(re.findall(r'"gpusetup/([a-z-]+)/[0-9]"', sources))
    assert named - KEPT_ELSEWHERE == set(documents())


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(tmp_path, monkeypatch):
    for name in ("GPUSETUP_STATE", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "own"))


def document_of(out):
    document = json.loads(out)
    jsonschema.validate(document, schema_of(document["schema"].split("/")[1]))
    return document


EXAMPLES = [
    shlex.split(example[1])
    for name in COMMANDS
    if name.split()[0] in {*GROUPS["choose a stack"], *GROUPS["other programs"]}
    for example in re.finditer(r"^  +gpusetup (\S.*?)(?:   .*| > .*)?$", load_command(name).__doc__, re.MULTILINE)
    if not re.search("https:|&&|--hashes|--format|--install|--vars|--pip|completion|--out", example[1])
]


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_a_document_has_what_the_text_of_an_example_states(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert unstated(words)[3] == []


@pytest.mark.parametrize("command", ["fleet health", "drift"])
def test_a_timer(command, tmp_path, monkeypatch):
    monkeypatch.setattr(timers, "unit_folder", lambda _environment: tmp_path / "units")
    monkeypatch.setattr(timers, "_run", lambda _argv, _environment: "")
    told = []
    for when in ("daily", "never", "never"):
        code, out, _ = run([*command.split(), "--timer", when, "--format", "json"])
        assert code == 0
        told.append(document_of(out))
    assert [document["state"] for document in told] == ["installed", "removed", "none"]
    assert told[0]["when"] == "daily"
    assert command.split()[0] in told[0]["runs"]


def test_export_monitoring_writes_the_files_that_it_names_and_the_same_again(tmp_path):
    texts, new = [], tmp_path / "new"
    for _ in range(2):
        code, out, _ = run(["export", "monitoring", "--out", str(new), "--format", "json"])
        assert code == 0
        texts.append({str(path.relative_to(new)): path.read_text() for path in new.rglob("*") if path.is_file()})
    assert json.loads(out)["files"] == sorted(texts[0])
    assert "rules/gpusetup-alerts.yml" in texts[0]
    assert texts[0] == texts[1]


def test_what_a_bundle_would_fetch(monkeypatch):
    request = Request(gpus=("t4",), os="debian12", arch="x86_64")
    lock = lock_of(resolve(request, matrix()), matrix())
    files = [Wanted(f"http://x/{name}", name, size, name) for name, size in (("small", 10), ("large", 3_000_000))]
    packages = tuple(Entry(file.name, "1", file, ()) for file in files)
    supply = choosing.Supply(choosing.Asked(request, Settings()), (lock,), "compute", packages, (), "3.11")
    monkeypatch.setattr(choosing, "choose", lambda *_: supply)
    (wanted,) = document_of(run(["bundle", "--gpu", "t4", "--os", "debian12", "--dry-run", "--format", "json"])[1])[
        "systems"
    ]
    assert [(file["name"], file["size"]) for file in wanted["files"]] == [("large", 3_000_000), ("small", 10)]
    assert (wanted["packages"], wanted["bytes"]) == (2, 3_000_010)


NO_ANSWER = {
    "export completion": "a program of the shell's",
    "cloud-init bootstrap": "a service that writes a log; `cloud-init status` tells how far it is",
    "fleet collect": "a server",
    "bundle serve": "a server",
}
REFUSED = stored_rows("json_everywhere_refused.json")
"""What each is asked in vain."""
CANNOT_FAIL = {"export content": "it says where something of its own is"}


def test_nothing_is_left_out():
    assert set(COMMANDS) == {*REFUSED, *NO_ANSWER, *CANNOT_FAIL}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_a_document(name, tmp_path):
    places = {"NOWHERE": str(tmp_path / "nowhere"), "OUT": str(tmp_path / "out")}
    (tmp_path / "nowhere-file").touch()
    words = REFUSED[name].replace("NOWHERE/a/file", str(tmp_path / "nowhere-file"))
    for word, place in places.items():
        words = words.replace(word, place)
    code, out, err = run([*name.split(), *words.split(), "--format", "json"])
    assert code not in {0, 1, 2}, err
    assert document_of(out)["ok"] is False
    if name != "fleet token":  # prints a token as text alone
        assert unstated([*name.split(), *words.split()])[::3] == (code, [])
