"""Commands that change nothing, from outside: exit codes, what goes where, document shapes, formats, files; `--newer` releases."""

import csv
import io
import json
import shlex
import sys
from unittest.mock import Mock

import pytest

from gpusetup.bootstrap import web
from gpusetup.bootstrap.web import Unfetched
from gpusetup.cli import newer
from tests.hosts.machines import HOSTS
from tests.property.test_command_line import run
from tests.stored import stored_rows


def document(*argv):
    code, out, _ = run([*argv, "--format", "json"])
    return code, json.loads(out)


@pytest.mark.parametrize(
    ("argv", "code", "reference"),
    stored_rows("lookup-exits.json"),
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_exit_codes_and_documents(argv, code, reference, tmp_path):
    found, told = document(*(word.replace("{absent}", str(tmp_path / "absent")) for word in argv))
    assert found == code
    assert told["ok"] is (code == 0)
    assert told["schema"].startswith("gpusetup/")
    if reference is not None:
        assert told["schema"] == "gpusetup/error/1"
        assert told["error"]["reference"] == reference
        assert set(told["error"]) >= {"reference", "message", "path", "hint"}
    elif code == 4:
        assert told["conflict"]
        assert set(told["conflict"][0]) == {"rule", "text", "source"}
        assert "suggestions" in told


def test_warnings_go_to_standard_error_and_quiet_drops_them():
    words = ["matrix", "torch", "--driver", "550.199.99"]
    code, out, err = run(words)
    assert (code, "warning" in out, "550.199.99 is not in the matrix" in err) == (0, False, True)
    assert run([*words, "--quiet"]) == (0, out, "")


def test_every_line_of_a_csv_has_every_column():
    header, *lines = csv.reader(io.StringIO(run(["matrix", "cuda", "--gpu", "v100", "--format", "csv"])[1]))
    assert header[-1] == "because", "why the chosen row is not the newest: only its line has it"
    assert {len(line) for line in lines} == {len(header)}


@pytest.mark.parametrize(
    "argv",
    ["resolve torch", "matrix cuda --format json", "why cuda --format json", "why-not cuda=13.1 --gpu v100", "lock --gpu t4"],
)  # fmt: skip
def test_out_writes_the_answer_to_a_file_in_a_folder_that_it_makes(argv, tmp_path):
    file = tmp_path / "new" / "below" / "answer"
    code, out, err = run([*argv.split(), "--out", str(file)])
    assert (out, f"written to {file}\n" in err, code in (0, 4)) == ("", True, True)
    assert {run([*argv.split(), *more])[1] for more in ((), ("--out", "-"))} == {file.read_text()}


def test_why_ends_in_a_command_that_asks_for_the_same_machine():
    _, out, _ = run(["why", "torch=2.6", "--gpu", "h100", "--os", "ubuntu22.04", "--python", "3.11"])
    *_, command, day = filter(None, map(str.strip, out.splitlines()))
    assert day.startswith("matrix of ")
    assert command == "gpusetup resolve python==3.11 'torch==2.6.*' --gpu h100 --os ubuntu22.04"
    code, out, _ = run(shlex.split(command)[1:])
    assert code == 0
    assert "2.6.0+cu" in out


def test_a_capture_of_facts_can_be_looked_at(tmp_path, printed):
    live, again = (
        printed(0, "facts", *words, tmp_path / "capture")["hosts"]["localhost"]
        for words in (("--no-candidates", "--capture"), ("--root",))
    )
    for part in ("os", "kernel", "gpus", "driver", "nouveau", "virtualisation", "pythons"):
        assert again[part] == live[part]


def test_the_facts_of_an_inventory_are_asked_through_ansible(tmp_path, monkeypatch, printed):
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        f"[all:vars]\nansible_connection=local\nansible_python_interpreter={sys.executable}\nansible_become=false\n[all]\na\n"
        f"b gpusetup_simulated_root={HOSTS}/debian12-t4-open/root\nc ansible_python_interpreter=/no/python\n"
    )
    document = printed(5, "facts", inventory, "--no-candidates", "-e", "gpusetup_become=false")
    assert set(document["hosts"]) == {"a", "b"}
    assert document["ok"] is False
    assert document["hosts"]["b"]["simulated"] is True
    assert document["hosts"]["b"]["gpus"][0]["name"] == "T4"
    assert document["hosts"]["a"]["simulated"] is False
    assert document["failures"]["c"]["reference"] == "GS-309"


FILES = stored_rows("files-of-an-index.json")
DRIVERS = {"999": {"type": "new feature branch", "driver_info": [{"release_version": "999.10", "release_date": ""}]}}


@pytest.fixture
def asked(monkeypatch):
    """Publishers that answer as PyPI and NVIDIA do; what was asked of them."""
    found: list[str] = []

    def fetch(url, *, accept, **_):
        found.append(url)
        if url == newer._DRIVERS:
            return json.dumps(DRIVERS).encode()
        assert accept == "application/vnd.pypi.simple.v1+json"
        name = url.rstrip("/").rpartition("/")[2]
        if name not in FILES:
            raise Unfetched(f"404 Not Found for {url}")
        files = [{"filename": file, "upload-time": day, "yanked": yanked} for file, day, yanked in FILES[name]]
        return json.dumps({"meta": {"api-version": "1.1"}, "files": files}).encode()

    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setattr(web, "fetch", fetch)
    return found


def test_nobody_is_asked_without_the_option_and_with_it_the_nearest_release_answers_marked(asked):
    code, told = document("resolve", "cudnn==9.99.1.4", "--gpu", "h100")
    assert (code, asked) == (4, [])
    assert "ask its publisher: the same command with --newer" in told["suggestions"]
    code, told = document("resolve", "cudnn==9.99.1.4", "--gpu", "h100", "--newer")
    assert (code, len(asked)) == (0, 2)
    marked = next(text for text in told["warnings"] if text.startswith("unconfirmed: "))
    assert "cudnn 9.99.1.4 of 2026-11-06 (nvidia-cudnn-cu13 on the package index)" in marked
    assert told["stack"]["cudnn"]["version"] in marked


def test_the_login_of_an_index_is_in_no_message(monkeypatch):
    absent = Unfetched("404 Not Found for https://me:secret-word@index.example/simple/torch/")
    for answer, said in (
        (b"<html>", "index.example"),
        (b'{"files": [1, {}]}', "does not list"),
        (absent, "index.example"),
    ):
        monkeypatch.setenv("PIP_INDEX_URL", "https://me:secret-word@index.example/simple")
        monkeypatch.setattr(web, "fetch", Mock(side_effect=[answer]))
        code, told = document("resolve", "torch==99.0.0", "--newer")
        assert code == 4, "the answer of the matrix"
        assert said in told["suggestions"][-1]
        assert "secret-word" not in json.dumps(told)


@pytest.mark.usefixtures("asked")
def test_the_table_tells_each_component_how_far_behind_the_matrix_is():
    code, told = document("matrix", "--newer")
    rows = {row["component"]: row for row in told["rows"]}
    assert code == 0
    assert rows["cudnn"]["publisher"] == "9.99.1.4"
    assert rows["cudnn"]["behind"] >= 0
    assert (rows["cupy"]["publisher"], rows["cupy"]["behind"]) == ("not reached", None)
    assert (rows["driver"]["publisher"], rows["driver"]["behind"]) == ("999.10", None)
    assert document("matrix", "torch", "--newer")[0] == 3
