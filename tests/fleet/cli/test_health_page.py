"""The page about health that lasts: every block is run in its order, and says what the page says."""

import os
import re
import shlex
from pathlib import Path

import pytest

from gpusetup.cli import session, timers
from gpusetup.cli.main import main
from gpusetup.verify import fleet, probe
from gpusetup.verify.probe import Observed
from gpusetup_fleet.cli import health
from gpusetup_fleet.health import schedulers

PAGE = Path(__file__).parents[3] / "docs/guides/health.md"
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (gpusetup .*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
COMMANDS = [found for block in BLOCKS for found in COMMAND.findall(block)]


@pytest.fixture
def root(machine, tmp_path, monkeypatch):
    """Root on a node of Slurm's, with a systemd and a fleet that only listen."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(timers, "unit_folder", lambda _: tmp_path / "units")
    monkeypatch.setattr(timers, "record", lambda _: None)
    monkeypatch.setattr(timers, "_run", lambda *_: "")
    monkeypatch.setattr(health, "FOLDERS", ())
    monkeypatch.setattr(schedulers, "FOLDER", str(tmp_path / "etc/gpusetup/hooks"))
    monkeypatch.setattr(session, "open_session", lambda _: None)
    monkeypatch.setattr(fleet, "observe_fleet", lambda *_: {"gpu07": Observed(machine.good)})
    monkeypatch.setenv("SLURMD_NODENAME", "gpu07")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventory.ini").write_text("gpu07\n")
    machine.slurm()
    machine.program("systemctl")
    return machine


def plain(text, folder):
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]{8}Z", "DATE", text.replace(str(folder), ""))
    return [line for line in text.splitlines() if line.strip()]


def test_every_block_is_run_in_its_order(root, tmp_path, monkeypatch):
    assert len(COMMANDS) == sum(block.count("\n$ ") + block.startswith("$ ") for block in BLOCKS) == 16
    # What the page's history shows: three good runs, one bad, one good; and one of the fleet's.
    for bad in (False, False, False, True, False):
        root.look(bad, "--level", "quick")
    main(["verify", "inventory.ini", "--level", "quick"])
    answers = [root.bad, root.bad, root.good]

    def observed(*_):
        return Observed(answers.pop(0))

    monkeypatch.setattr(probe, "observe_in_turn", observed)
    root.capsys.readouterr()
    for command, shown in COMMANDS:
        lines = plain(shown, tmp_path)
        wanted = int(lines.pop()[6:-1]) if lines and lines[-1].startswith("[exit ") else 0
        assert main(shlex.split(command, comments=True)[1:]) == wanted, command
        said = root.capsys.readouterr()
        answer, place = plain(said.err + said.out, tmp_path), 0
        for line in lines:
            if line != "…":
                assert line in answer[place:], "\n".join([f"{command}: not after line {place}: {line}", *answer])
                place = answer.index(line, place) + 1
        if "…" not in lines and lines:
            assert len(answer) == len(lines), f"{command}: the page leaves lines out without saying so"
