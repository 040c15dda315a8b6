"""This machine, as a captured one that somebody breaks and mends, beside stand-ins for schedulers."""

import json
import stat

import pytest

from gpusetup.cli.main import main
from gpusetup.verify import probe
from gpusetup.verify.probe import Observed
from gpusetup_fleet.cli import verify_quarantine
from tests.unit.verify.verify_documents import captured, set_smi

SCONTROL = r"""
state=$(cat state); reason=$(cat reason)
case "$*" in
  *"show node") echo "NodeName=other State=IDLE" ;;
  *"show node"*) echo "NodeName=$4 State=$state ThreadsPerCore=1${reason:+ Reason=$reason [root@2026-11-22T03:10:03]}" ;;
  *State=DRAIN*) echo IDLE+DRAIN >state; echo "${4#Reason=}" >reason ;;
  *State=RESUME*) echo IDLE >state; : >reason ;;
  *) exit 1 ;;
esac"""
KUBECTL = r"""
case "$*" in
  "get nodes"*) printf 'other\t8\t\n' ;;
  "get node"*) cat node.json ;;
  "taint node"*"-") echo '{"spec": {}}' >node.json ;;
  "taint node"*) echo '{"spec": {"taints": [{"key": "gpusetup/gpu-unhealthy", "effect": "NoSchedule"}]}}' >node.json ;;
  "patch node"*) for word; do case $word in --patch=*) echo "${word#--patch=}" >patch.json ;; esac; done ;;
  *) exit 1 ;;
esac"""


class Machine:
    """This machine; programs are written beside it."""

    def __init__(self, folder, capsys):
        self.folder, self.capsys = folder, capsys
        self.good, self.bad = captured("h200-x1-quick"), captured("h200-x1-quick")
        set_smi(self.bad, 0, "gpu_recovery_action", "Reset")
        self.observed = Observed(self.good)
        (folder / "state").write_text("IDLE")
        (folder / "reason").write_text("")
        (folder / "node.json").write_text('{"spec": {}}')

    def program(self, name, body=""):
        path = self.folder / name
        path.write_text(f'#!/bin/sh\ncd {self.folder}\necho "$(basename "$0") $*" >>calls\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def slurm(self):
        """An scontrol that keeps one node's state and reason."""
        self.program("scontrol", SCONTROL)

    def kubernetes(self):
        """A kubectl that keeps one node's taints, and the last patch."""
        self.program("kubectl", KUBECTL)

    def calls(self, name):
        path = self.folder / "calls"
        return [line for line in path.read_text().splitlines() if line.startswith(name)] if path.exists() else []

    def look(self, bad, *words):
        """Verify; the exit code is the verification's own, whatever follows."""
        self.observed = Observed(self.bad if bad else self.good)
        assert main(["fleet", "health", *words, "--format", "json"]) == (8 if bad else 0)
        said = self.capsys.readouterr()
        assert json.loads(said.out)["hosts"]["localhost"]
        return said.err

    def looks(self, number, bad, *words):
        """Verify so often; return the last words."""
        return [self.look(bad, *words) for _ in range(number)][-1]

    def node(self):
        return (self.folder / "state").read_text().strip(), (self.folder / "reason").read_text().strip()

    def drained(self, reason):
        (self.folder / "state").write_text("IDLE+DRAIN")
        (self.folder / "reason").write_text(reason)


@pytest.fixture
def machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "kept"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setattr(verify_quarantine, "_PAUSE", 0.0)
    found = Machine(tmp_path, capsys)
    monkeypatch.setattr(probe, "observe_in_turn", lambda *_: found.observed)
    return found
