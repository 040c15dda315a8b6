"""`--timer` and `--hooks`: what systemd and schedulers call is the command that was typed; nothing hostile gets through."""

import json
import shutil
import subprocess
import sys

import pytest

from gpusetup.cli import timers
from gpusetup.cli.main import command_parser, main
from gpusetup.content import host_code
from gpusetup.errors import BadInputError
from gpusetup_fleet.health import schedulers

DRIFT = timers.Task(does="check {what} for drift")
HOSTILE = """a b"c'd$HOME%h\\;e"""


@pytest.fixture
def systemd(monkeypatch, tmp_path):
    """A systemctl that only listens, and a folder for units."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(timers, "unit_folder", lambda _environment: tmp_path / "units")
    monkeypatch.setattr(timers, "_run", lambda argv, _environment: asked.append(tuple(argv)) or "")
    return asked


def test_it_is_installed_changed_and_removed(systemd, tmp_path, capsys):
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-K"], "GS-807"), (["gpu01,", "-e", "token=planted"], "@FILE"), (["gpu01,", "--", "-e", "token=planted"], "@FILE"),
        (["gpu01,", "--", "-etoken=planted"], "@FILE"),
    ],
)  # fmt: skip
def test_a_timer_has_nobody_to_ask_and_no_value_of_a_variable_gets_into_a_unit(systemd, tmp_path, says, words, said):
    assert said in says(3, "drift", "--timer", "daily", *words)
    assert (systemd, (tmp_path / "units").exists()) == ([], False)


@pytest.mark.parametrize("name", ["drift", "fleet health", "fleet pull"])
def test_a_timer_repeats_every_option_that_its_command_takes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-x").touch()
    parser, words = command_parser(name), []
    for one in parser._actions:
        text = "@-x" if one.dest == "extra_vars" else one.choices[-1] if one.choices else "3" if one.type else "-x"
        if one.nargs != 0 and one.dest not in timers._OWN:
            words += [f"{one.option_strings[0]}={text}"] if one.option_strings else ["gpu01,"]
        elif one.default is False and not one.dest.startswith("ask_"):
            words.append(one.option_strings[0])
    given = parser.parse_args(words)
    again = parser.parse_args(timers.typed(given))
    left = {*timers._OWN, *(["out"] if hasattr(given, "answers") else [])}
    for dest, value in vars(given).items():
        kept = str(getattr(again, dest)).replace(f"{tmp_path}/", "")
        assert dest in left or kept == str(value), dest


def test_what_systemd_expands_in_commands_stays_itself_in_settings():
    service = timers.units(DRIFT, ["/bin/true", "a$b"], "daily", "x", {"GPUSETUP_STATE": "/srv/a$b"})["service"]
    assert 'ExecStart="/bin/true" "a$$b"' in service
    assert 'Environment="GPUSETUP_STATE=/srv/a$b"' in service


def test_a_line_break_never_reaches_a_unit():
    with pytest.raises(BadInputError):
        timers.quoted("x\nExecStartPost=/bin/sh")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze reads the units back")
def test_systemd_accepts_the_units(tmp_path):
    command = ["/bin/true", "drift", HOSTILE, "$(touch x)"]
    task = timers.Task(does="check {what}", codes="SuccessExitStatus=9\n", environment=(("A", HOSTILE),))
    for suffix, text in timers.units(task, command, "Mon..Fri 06:30", f"{HOSTILE} hosts", {"HOME": "/root"}).items():
        (tmp_path / f"gpusetup-drift.{suffix}").write_text(text)
    argv = ["systemd-analyze", "verify", tmp_path / "gpusetup-drift.service", tmp_path / "gpusetup-drift.timer"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    said = [line for line in done.stderr.splitlines() if "gpusetup-drift" in line]
    assert not said, said


def test_a_verification_has_a_timer_of_the_same_kind(systemd, tmp_path, says):
    folder, full = tmp_path / "textfiles", ["fleet", "health", "--level", "full"]
    folder.mkdir()
    says(0, *full, "--textfile", folder, "--timer", "Sun 04:00", "--budget", "300")
    service = (tmp_path / "units/gpusetup-health-full.service").read_text()
    assert f'"fleet" "health" "--level" "full" "--when-idle" "--budget" "300" "--textfile" "{folder}"' in service
    assert "SuccessExitStatus=9" in service
    says(0, "fleet", "health", "--timer", "hourly")
    assert '"fleet" "health" "--when-idle"' in (tmp_path / "units/gpusetup-health.service").read_text()
    says(0, *full, "--timer", "never")
    units = sorted(path.name for path in (tmp_path / "units").iterdir())
    assert units == ["gpusetup-health.service", "gpusetup-health.timer"]
    assert "no such timer" in says(0, *full, "--timer", "never")


def test_on_a_machine_with_a_record_the_timer_is_part_of_it(systemd, tmp_path, monkeypatch):
    state, units = tmp_path / "state", tmp_path / "units"
    state.mkdir()
    record = {"schema": "gpusetup/state/1", "apply": {"id": "a", "finished": "now"}, "files": {}, "services": {}}
    (state / "state.json").write_text(json.dumps(record))
    monkeypatch.setattr(timers, "_STATE", state)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert main(["fleet", "health", "--timer", "daily"]) == 0
    kept = json.loads((state / "state.json").read_text())
    assert sorted(kept["files"]) == [str(units / f"gpusetup-health.{kind}") for kind in ("service", "timer")]
    service = {"enabled": False, "was_enabled": False, "was_active": False}
    assert kept["services"] == {"gpusetup-health.timer": service}
    (units / "gpusetup-health.timer").write_text("changed")
    files = {path: {**entry, "now": "another"} for path, entry in kept["files"].items()}
    (first, second) = host_code("gpu_judge.drift").files({}, {"files": files})
    assert {first.mend, second.mend} == {"hand"}, "no apply writes it: the command that does is named"
    assert first.hint == "gpusetup fleet health --when-idle --timer daily"
    assert not host_code("gpu_judge.record_form").wrong(kept)
    assert main(["fleet", "health", "--timer", "never"]) == 0
    kept = json.loads((state / "state.json").read_text())
    assert (kept["files"], kept["services"], list(units.iterdir())) == ({}, {}, [])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(schedulers, "FOLDER", str(tmp_path / "hooks"))
    monkeypatch.setattr(timers, "record", lambda _: None)
    return tmp_path / "hooks"


def test_the_scripts_fail_open(machine, folder, says):
    """Only exit 8 keeps a job away; the health program never fails, for slurmd would not come up."""
    words = ["--ignore", "gpu.ecc", "--strict", "--budget", "20", "--cuda-home", "/opt/cuda"]
    assert f"{folder}/slurm-health" in says(0, "fleet", "health", "--hooks", "slurm", *words)
    machine.program("logger", "cat >>log")
    for name, codes in (("slurm-health", {0: 0, 1: 0, 8: 0, 127: 0}), ("slurm-job", {0: 0, 1: 0, 8: 1, 9: 0, 127: 0})):
        text = (folder / name).read_text()
        assert "--ignore gpu.ecc --strict --cuda-home /opt/cuda --budget 20" in text
        for code, wanted in codes.items():
            stand_in = machine.program("python", f"echo said {code} >&2; exit {code}")
            script = machine.folder / "script"
            path = f"PATH={machine.folder}:/usr/local/sbin"
            script.write_text(text.replace(sys.executable, str(stand_in)).replace("PATH=/usr/local/sbin", path))
            assert subprocess.run(["sh", str(script)], check=False, timeout=20).returncode == wanted
        assert "said 8" in (machine.folder / "log").read_text()
    assert main(["fleet", "health", "--hooks", "never"]) == 0
    assert len(machine.capsys.readouterr().out.splitlines()) == 4
    assert list(folder.iterdir()) == []
    assert says(0, "fleet", "health", "--hooks", "never") == "no hooks"


def test_hooks_are_part_of_the_record(machine, folder, monkeypatch):
    ledger = host_code("gpu_host.ledger").Ledger(str(machine.folder / "lib"))
    monkeypatch.setattr(timers, "record", lambda _: ledger)
    assert main(["fleet", "health", "--hooks", "slurm"]) == 0
    assert ledger.state["files"][str(folder / "slurm-job")]["hint"] == "gpusetup fleet health --hooks slurm"
    assert (folder / "slurm-job").stat().st_mode & 0o777 == 0o755
    assert main(["fleet", "health", "--hooks", "never"]) == 0
    assert ledger.state["files"] == {}


def test_hooks_that_cannot_be_written_are_refused(machine, folder, says):
    folder.write_text("in the way")
    assert "GS-517" in says(3, "fleet", "health", "--hooks", "slurm")
