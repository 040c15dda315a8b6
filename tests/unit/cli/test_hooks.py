"""`fleet health --hooks`: what Slurm and Kubernetes call; scripts that fail open, as part of the machine's record."""

import subprocess
import sys

import pytest

from gpusetup.cli import timers
from gpusetup.cli.main import main
from gpusetup.content import host_code
from gpusetup.health import schedulers


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(schedulers, "FOLDER", str(tmp_path / "hooks"))
    monkeypatch.setattr(timers, "record", lambda _: None)
    return tmp_path / "hooks"


def test_the_scripts_fail_open(machine, folder):
    """Only exit 8 keeps a job away; the health program never fails, for slurmd would not come up."""
    words = ["--ignore", "gpu.ecc", "--strict", "--budget", "20", "--cuda-home", "/opt/cuda"]
    assert main(["fleet", "health", "--hooks", "slurm", *words]) == 0
    assert f"{folder}/slurm-health" in machine.capsys.readouterr().out
    machine.program("logger", "cat >>log")
    for name, codes in (("slurm-health", {0: 0, 1: 0, 8: 0, 127: 0}), ("slurm-job", {0: 0, 1: 0, 8: 1, 9: 0, 127: 0})):
        text = (folder / name).read_text()
        assert "--return-after 3 --most-out 10% --budget 20 --cuda-home /opt/cuda --strict" in text
        for code, wanted in codes.items():
            stand_in = machine.program("python", f"echo said {code} >&2; exit {code}")
            script = machine.folder / "script"
            path = f"PATH={machine.folder}:/usr/local/sbin"
            script.write_text(text.replace(sys.executable, str(stand_in)).replace("PATH=/usr/local/sbin", path))
            assert subprocess.run(["sh", str(script)], check=False, timeout=20).returncode == wanted
        assert "said 8" in (machine.folder / "log").read_text()
    assert main(["fleet", "health", "--hooks", "show"]) == 0
    assert len(machine.capsys.readouterr().out.splitlines()) == 3
    assert main(["fleet", "health", "--hooks", "never"]) == 0
    assert list(folder.iterdir()) == []
    machine.capsys.readouterr()
    main(["fleet", "health", "--hooks", "never"])
    assert machine.capsys.readouterr().out == "no hooks\n"


def test_hooks_are_part_of_the_record(machine, folder, monkeypatch):
    ledger = host_code("gpu_host.ledger").Ledger(str(machine.folder / "lib"))
    monkeypatch.setattr(timers, "record", lambda _: ledger)
    assert main(["fleet", "health", "--hooks", "slurm"]) == 0
    hint = "gpusetup fleet health --hooks slurm --level quick --leave-after 2 --return-after 3 --most-out 10%"
    assert ledger.state["files"][str(folder / "slurm-job")]["hint"] == hint
    assert (folder / "slurm-job").stat().st_mode & 0o777 == 0o755
    assert main(["fleet", "health", "--hooks", "never"]) == 0
    assert ledger.state["files"] == {}


def test_hooks_that_cannot_be_written_are_refused(machine, folder):
    folder.write_text("in the way")
    assert main(["fleet", "health", "--hooks", "slurm"]) == 3
    assert "GS-517" in machine.capsys.readouterr().err
