"""The command line: one line with a suggestion where a word is not known; what a project asks in the words of its files."""

import json

import pytest

from gpusetup.cli import main as front
from gpusetup.cli.commands import COMMANDS
from tests.property.test_command_line import run as answered
from tests.stored import stored_rows


def run(*words):
    return answered(list(words))


@pytest.mark.parametrize(("words", "suggestion"), stored_rows("what-is-not-known-gets-a-suggestion-and.json"))
def test_what_is_not_known_gets_a_suggestion_and_not_the_usage(words, suggestion):
    code, out, err = run(*words.split())
    assert (code, out) == (2, "")
    assert suggestion in err
    assert len(err.splitlines()) <= 2


def test_help_and_version_are_words_as_well():
    assert run("version")[1].startswith("gpusetup ")
    assert run("version", "--verbose") == run("--verbose", "--version")
    assert "ansible-core " in run("--version", "--verbose")[1]
    assert "choose a stack:" in run("help")[1]
    assert "--gpu" in run("help", "resolve")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_fits_a_screen_of_60_lines(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = front.command_parser(name).format_help().splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("words", ["facts -- --become", "facts -K", "watch -e x=1", "verify -- -vvv"])
def test_what_only_ansible_reads_is_refused_where_ansible_has_no_part(words):
    code, _, err = run(*words.split())
    assert (code, "has no effect without an inventory" in err) == (3, True)


def test_the_machine_of_pyproject_counts_for_the_lock_beside_it(tmp_path, capsys):
    (tmp_path / "uv.lock").write_text("[[package]]\nname = 'torch'\nversion = '2.9.1'\n")
    codes = []
    for driver in ("570.86.15", "470.82.01"):
        (tmp_path / "pyproject.toml").write_text(f"[tool.gpusetup]\ngpu = ['h100']\ninstalled_driver = '{driver}'\n")
        codes.append(
            front.main(["lock", "--from", str(tmp_path / "uv.lock"), "--out", str(tmp_path / "gpu.lock.json")])
        )
    assert codes == [0, 4]
    assert json.loads((tmp_path / "gpu.lock.json").read_text())["stack"]["driver"]["version"] == "570.86.15"
    assert "driver 470.82.01 is installed and stays" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "torch", "code", "said"),
    [
        ("ubuntu24.04-h200-keep", "2.9.1", 0, "installed, stays"),
        ("debian12-v100-proprietary", "2.9.1+cu130", 4, "no stack fits"),
        ("debian12-none-nothing", "2.9.1", 5, "no NVIDIA GPU on PCI"),
    ],
)
def test_the_doctor_compares_a_project_with_a_machine(host, torch, code, said, tmp_path, capsys):
    (tmp_path / "requirements.txt").write_text(f"torch=={torch}\n")
    assert front.main(["doctor", str(tmp_path / "requirements.txt"), "--root", f"tests/hosts/{host}/root"]) == code
    told = capsys.readouterr()
    assert said in told.out + told.err
