"""Commands that change nothing, from outside: exit codes, what goes where, document shapes, formats, files."""

import csv
import datetime as dt
import io
import json
import shlex
import sys

import msgspec
import pytest

from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import Facts
from tests.hosts.machines import HOSTS, machine
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


def test_a_near_name_is_suggested():
    assert "did you mean torch?" in document("resolve", "torhc")[1]["error"]["hint"]
    assert "did you mean `gpusetup resolve`?" in run(["resolv"])[2]
    assert "ubuntu22.04" in document("resolve", "--os", "ubunto22.04")[1]["error"]["hint"]
    assert "RTX 4090" in document("resolve", "--gpu", "geforce rtx 4099")[1]["error"]["hint"]


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


def test_why_a_version_that_is_not_chosen():
    code, told = document("why", "cuda=13.4", "--gpu", "h100")
    assert code == 0
    command = "gpusetup resolve 'cuda==13.4.*' --gpu h100"
    assert told["asked"] == {"version": "cuda==13.4.*", "fits": True, "command": command}
    assert told["matrix"] == document("resolve", "--gpu", "h100")[1]["matrix"]
    assert document("why", "cuda=13.1", "--gpu", "v100")[1]["asked"]["fits"] is False
    assert document("why", "cuda", "cuda==12.8.*", "--gpu", "h100")[1]["chosen"]["version"] == "12.8.1"


def test_old_data_is_said_to_be_old(monkeypatch):
    class Later(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return dt.datetime.fromisoformat(Matrix().date).replace(tzinfo=tz) + dt.timedelta(days=91)

    monkeypatch.setattr("gpusetup.cli.requests.dt.datetime", Later)
    for command in ("resolve", "matrix"):
        assert "91 days old" in str(document(command, "cuda==12.4.*")[1]["warnings"])


def test_from_facts_resolves_for_each_kind_of_host(tmp_path):
    names = ("debian12-v100-proprietary", "ubuntu24.04-h200-keep", "ubuntu24.04-gtx1080ti-rtx5090-nostack")
    hosts = {name: machine(name) for name in names}
    hosts["twin"] = hosts[names[0]]
    path = tmp_path / "facts.json"
    path.write_bytes(msgspec.json.encode(Facts(hosts=hosts)))
    code, told = document("resolve", "torch", "--from", str(path))
    assert code == 4, "one kind of host has no stack"
    assert told["ok"] is False
    by_host = {host: answer for answer in told["classes"].values() for host in answer["hosts"]}
    assert by_host["twin"] is by_host[names[0]]
    assert by_host[names[0]]["stack"]["torch"]["variant"] == "cu126"
    assert by_host[names[0]]["stack"]["driver"]["module"] == "proprietary"
    assert by_host[names[1]]["stack"]["driver"]["installed"] is True
    # Pascal beside Blackwell: no flavour of the module drives both, and no torch has code for both.
    rules = {item["rule"] for item in by_host[names[2]]["conflict"]}
    assert rules in ({"module-flavour"}, {"torch-needs-code-for-gpu"})


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
