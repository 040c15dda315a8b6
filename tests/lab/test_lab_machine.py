"""What the lab says of a machine that cannot run it; no lab is built here."""

import pytest

from tests import programs
from tests.lab import __main__ as command
from tests.lab import machine
from tests.lab.places import LabError


def test_without_root_the_reason_says_so(monkeypatch, capsys):
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)
    assert "needs root" in (machine.why_not() or "")
    monkeypatch.setattr("sys.argv", ["lab", "up"])
    assert command.main() == 5
    assert "needs root" in capsys.readouterr().err


def test_tools_without_apt_to_install_them_are_named(monkeypatch):
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine.shutil, "which", lambda program, **_: None)
    reason = machine.why_not() or ""
    assert "mmdebstrap" in reason
    assert "no apt-get" in reason


def test_a_failed_installation_of_tools_says_what_to_do_by_hand(monkeypatch):
    monkeypatch.setattr(machine, "why_not", lambda: None)
    monkeypatch.setattr(machine, "missing", lambda _more: ["mmdebstrap", "rpm"])

    def refuse(argv, **_):
        raise LabError(f"exit status 100: {' '.join(argv)}")

    monkeypatch.setattr(programs, "run", refuse)
    with pytest.raises(LabError, match=r"(?s)exit status 100.*apt-get install mmdebstrap rpm"):
        machine.prepare()
