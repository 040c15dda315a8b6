"""`doctor --apply` at the command line: shown first, asked for, done only after a yes, and told with its exit code."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpusetup.cli import doctor_hosts
from gpusetup.cli.main import main
from gpusetup.drive.events import HostProgress, Track
from gpusetup.facts.collect import matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.rollout import recovery
from tests.hosts.test_sick import build
from tests.stored import stored_rows

HOSTS = Path(__file__).parents[2] / "hosts"
GPU = "0000:00:06.0"


class Fleet:
    """One host, `node`, that is looked at and played on."""

    def __init__(self, folder):
        self.folder = folder
        self.before = self.after = self.look("well")
        self.plays: list[bool] = []

    def look(self, name):
        sick, root = HOSTS / "sick" / name, HOSTS / "ubuntu24.04-h200-keep/root"
        if sick.is_dir():
            root = self.folder / name
            build(sick, root)
        return doctor_hosts.captured(root, matrix_lookup(matrix()))

    def hosts(self, _session, _lookup, *, overlay=None):
        track = Track()
        track.hosts["node"] = HostProgress("node")
        return {"node": self.before if overlay is None else self.after}, {}, track

    def play(self, _session, name, *, check=False, **_more):
        assert name == "recover"
        self.plays.append(check)
        track = SimpleNamespace(host=lambda _name: SimpleNamespace(failure=None))
        return SimpleNamespace(interrupted=False, track=track)


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    made = Fleet(tmp_path)
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(doctor_hosts, "hosts", made.hosts)
    monkeypatch.setattr(recovery, "run_playbook", made.play)
    made.before = made.look("driver-asks-for-a-reset")
    return made


def test_without_a_yes_it_is_shown_and_not_done(fleet, capsys):
    assert main(["doctor", "--apply"]) == 9
    said = capsys.readouterr()
    assert f"node of {GPU}: needs a reset of the GPU (the driver's recovery action is:" in said.out
    assert "would be done: reset" in said.out
    assert "nothing was changed" in said.err
    assert fleet.plays == [True]


@pytest.mark.parametrize("words", [["--dry-run"], ["--dry-run", "--reboot", "never"]])
def test_a_dry_run_asks_nobody(fleet, monkeypatch, words):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: pytest.fail("it asked")))
    assert main(["doctor", "--apply", *words]) == 9
    assert fleet.plays == [True]


@pytest.mark.parametrize(("answer", "code", "plays"), [("y\n", 0, [True, False]), ("\n", 9, [True]), ("", 9, [True])])
def test_a_person_is_asked_once(fleet, monkeypatch, capsys, answer, code, plays):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: answer))
    assert main(["doctor", "--apply"]) == code
    assert fleet.plays == plays
    assert "do all of this? [y/N]" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "code", "words"), stored_rows("doctor-apply-words.json"))
def test_each_need_has_its_answer(fleet, capsys, name, code, words):
    fleet.before = fleet.look(name)
    assert main(["doctor", "--apply"]) == code
    assert words in capsys.readouterr().out
