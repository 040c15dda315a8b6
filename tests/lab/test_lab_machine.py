"""What the lab says of a machine that cannot run it; no lab is built here."""

import subprocess

import pytest

from tests import programs
from tests.lab import __main__ as command
from tests.lab import machine, mirror
from tests.lab.places import LabError

DEBIAN = "Debian|http://mirror.example/debian\n"


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


@pytest.mark.parametrize(
    ("configured", "lines"),
    [
        (f"{DEBIAN}Debian-Security|http://mirror.example/security\nUbuntu|http://other.example\n", 3),
        (DEBIAN, 2), ("Ubuntu|http://other.example/ubuntu\n", 0), ("", 0),
    ],
)  # fmt: skip
def test_the_mirror_is_the_one_that_apt_has(configured, lines, monkeypatch):
    mirror._sites.cache_clear()
    monkeypatch.setattr(mirror, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, configured, ""))
    sources = mirror.sources("bookworm")
    mirror._sites.cache_clear()
    assert len(sources) == lines
    assert all(line.startswith("deb http://mirror.example/") for line in sources)
