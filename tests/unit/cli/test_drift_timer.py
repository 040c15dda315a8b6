"""`gpusetup drift --timer`: units that systemd reads back as the command that was typed; nothing hostile gets through."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from gpusetup.cli import drift_timer
from gpusetup.cli.main import main
from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = """a b"c'd$HOME%h\\;e"""


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """A systemctl that only listens, and a folder for units."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(drift_timer, "unit_folder", lambda _environment: tmp_path / "units")
    monkeypatch.setattr(drift_timer, "_run", lambda argv, _environment: asked.append(tuple(argv)) or "")
    return asked


def test_it_is_installed_changed_and_removed(systemd: list[Any], tmp_path: Path, capsys: Any) -> None:
    inventory = tmp_path / "inventory.ini"
    inventory.write_text("gpu01\n")
    question = ["drift", str(inventory), "--limit", "gpu*"]
    assert main([*question, "--timer", "daily"]) == 0
    (timer,) = (tmp_path / "units").glob("*.timer")
    service = timer.with_suffix(".service")
    assert "OnCalendar=daily" in timer.read_text()
    assert f'"drift" "--limit" "gpu*" "{inventory}"' in service.read_text()
    assert ("systemctl", "enable", timer.name) in [tuple(w for w in call if w != "--user") for call in systemd]
    assert timer.stem in capsys.readouterr().out
    assert main([*question, "--timer", "hourly"]) == 0
    assert "OnCalendar=hourly" in timer.read_text(), "the same question has one timer"
    assert main([*question, "--timer", "never"]) == 0
    assert list((tmp_path / "units").iterdir()) == []
    assert main([*question, "--timer", "never"]) == 0


def test_a_timer_has_nobody_to_ask(systemd: list[Any], capsys: Any) -> None:
    assert main(["drift", "-K", "--timer", "daily"]) == 3
    assert "GS-807" in capsys.readouterr().err
    assert systemd == []


@pytest.mark.parametrize("words", [["-e", "token=planted"], ["--", "-e", "token=planted"], ["--", "-etoken=planted"]])
def test_no_value_of_a_variable_gets_into_a_unit(
    systemd: list[Any], tmp_path: Path, capsys: Any, words: list[str]
) -> None:
    assert main(["drift", "--timer", "daily", "gpu01,", *words]) == 3
    assert "@FILE" in capsys.readouterr().err
    assert (systemd, (tmp_path / "units").exists()) == ([], False)


def test_a_file_of_variables_is_named_absolutely(
    systemd: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["drift", "--timer", "daily", "-e", "@vars.yml"]) == 0
    (service,) = (tmp_path / "units").glob("*.service")
    assert f'"--extra-vars" "@{tmp_path}/vars.yml"' in service.read_text()


def test_what_systemd_expands_in_commands_stays_itself_in_settings() -> None:
    service, _ = drift_timer.units(["/bin/true", "a$b"], "daily", "x", {"GPUSETUP_STATE": "/srv/a$b"})
    assert 'ExecStart="/bin/true" "a$$b"' in service
    assert 'Environment="GPUSETUP_STATE=/srv/a$b"' in service


def test_a_line_break_never_reaches_a_unit() -> None:
    with pytest.raises(BadInputError):
        drift_timer.quoted("x\nExecStartPost=/bin/sh")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze reads the units back")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    command = ["/bin/true", "drift", HOSTILE, "$(touch x)"]
    service, timer = drift_timer.units(command, "Mon..Fri 06:30", f"{HOSTILE} hosts", {"HOME": "/root"})
    (tmp_path / "gpusetup-drift.service").write_text(service)
    (tmp_path / "gpusetup-drift.timer").write_text(timer)
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "gpusetup-drift.service", tmp_path / "gpusetup-drift.timer"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "gpusetup-drift" in line]
    assert not said, said
