"""The collector's unit: what systemd reads back, and how exposed it says that the service is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpusetup.cli.main import main

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze reads the unit back")


@pytest.mark.parametrize("listen", ["0.0.0.0:8443", "0.0.0.0:443"])
def test_systemd_takes_it_and_finds_little_exposed(
    listen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "owner", lambda _: "daemon")
    folder = tmp_path / "the 100% $folder"
    folder.mkdir()
    assert main(["fleet", "collect", str(folder), "--listen", listen, "--unit"]) == 0
    unit = tmp_path / "gpusetup-collector.service"
    unit.write_text(capsys.readouterr().out)
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "gpusetup-collector" not in verified.stderr, verified.stderr
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True, check=True
    ).stdout
    exposure = re.search(r"exposure level for .*: ([0-9.]+)", told)
    assert exposure is not None
    print(exposure[0])
    assert float(exposure[1]) <= 2.0


def test_a_folder_of_root_makes_no_unit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "owner", lambda _: "root")
    assert main(["fleet", "collect", str(tmp_path), "--unit"]) == 3
    assert "useradd --system gpusetup && install -d -o gpusetup -m 0700" in capsys.readouterr().err
