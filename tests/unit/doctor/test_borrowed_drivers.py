"""WSL, Jetsons and containers: the driver comes from elsewhere, and nobody is told to apply there."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpusetup.cli.main import main
from gpusetup.doctor.catalogue import catalogue
from gpusetup.doctor.diagnose import diagnose
from gpusetup.doctor.findings import finding_of
from gpusetup.doctor.look import without_apply
from gpusetup.plan.preflight import foreign_driver
from tests.unit.doctor.test_machines import HOSTS, environment, look_at

WSL = HOSTS / "ubuntu22.04-wsl-refused" / "root"


@pytest.fixture
def wsl(tmp_path):
    shutil.copytree(WSL, tmp_path / "root", symlinks=True)
    return tmp_path / "root"


@pytest.fixture
def jetson(wsl):
    """A Jetson as its kernel and files tell: no GPU on PCI, no nvidia-smi, a driver that no package manager brought."""
    shutil.rmtree(wsl / "usr/lib/wsl")
    (wsl / "dev/dxg").unlink()
    for name in ("proc/sys/kernel/osrelease", "proc/version", "gpusetup-capture.json"):
        text = (wsl / name).read_text(encoding="utf-8")
        (wsl / name).write_text(text.replace("5.15.167.4-microsoft-standard-WSL2", "5.15.148-tegra"), encoding="utf-8")
    capture = json.loads((wsl / "gpusetup-capture.json").read_text(encoding="utf-8"))
    capture["observations"].pop("command:nvidia-smi")
    (wsl / "gpusetup-capture.json").write_text(json.dumps(capture), encoding="utf-8")
    return wsl


def said(root: Path, capsys: Any) -> str:
    main(["doctor", "--root", str(root)])
    return " ".join(capsys.readouterr().out.split())


def test_wsl_is_told_to_update_on_windows(wsl, capsys):
    text = said(wsl, capsys)
    assert "it is that of Windows: update it there; gpusetup installs none here" in text
    assert "gpusetup apply" not in text


def test_a_jetson_is_healthy_without_a_gpu_on_pci(jetson, capsys):
    text = said(jetson, capsys)
    assert text.startswith("localhost: healthy")
    assert "a Jetson: its GPU is part of the processor" in text
    assert "it is that of Jetson Linux: update it there" in text
    assert "gpusetup apply" not in text


def test_plan_refuses_a_jetson_with_the_same_advice(jetson):
    refusal = foreign_driver(look_at(jetson).facts)
    assert refusal is not None
    assert "Jetson Linux" in refusal.message
    assert "nvidia-jetpack" in (refusal.hint or "")


@pytest.mark.parametrize("kind", ["wsl", "jetson"])
def test_a_sick_environment_there_is_never_sent_to_apply(kind, request):
    root = request.getfixturevalue(kind)
    environment(root, "torch-2.8.0+cpu")
    found = diagnose(look_at(root)).cause
    assert found is not None
    assert found.cause == "torch-cpu-build"
    assert not [line for fix in found.fixes for line in fix.commands if "gpusetup apply" in line]


def test_other_fixes_stay_as_they_are():
    found = finding_of(catalogue()["device-file-permission"])
    assert without_apply(found, "wsl") == found or "gpusetup apply" in str(found.fixes)
