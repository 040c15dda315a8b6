"""Machines that get no driver from us: facts, plan, drift, doctor and resolver say the same of them, never `apply`."""

import json
from typing import Any

import msgspec
import pytest

from gpusetup.cli.drift import _compared
from gpusetup.cli.main import main
from gpusetup.matrix.load import matrix
from gpusetup.model.settings import Settings
from gpusetup.plan.preflight import apply_refused
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from tests.hosts.machines import HOSTS, machine

WSL, VGPU = "ubuntu22.04-wsl-refused", "ubuntu22.04-l4vgpu-grid"
CONTAINER, TWO = "debian12-t4-container-refused", "ubuntu24.04-gtx1080ti-rtx5090-nostack"


def _facts(folder, name):
    path = folder / "facts.json"
    assert main(["facts", "--root", str(HOSTS / name / "root"), "--format", "json", "--out", str(path)]) == 0
    return path


@pytest.mark.parametrize(
    ("name", "reference", "said"), [(WSL, "GS-322", "driver of Windows"), (VGPU, "GS-323", "vGPU"), (TWO, "GS-210", "")]
)
def test_nobody_is_told_to_apply_where_apply_refuses(name, reference, said, planner, capsys):
    facts = machine(name)
    refusal = apply_refused(facts, matrix(), resolve)
    assert refusal is not None
    assert refusal.reference == reference
    assert said in refusal.message
    if name != WSL:  # no GPU is on PCI there: drift has nothing to compare
        compared = _compared(facts, "localhost", None)
        assert (compared.state, compared.mend) == ("not-applied", "")
        assert compared.refusals[0].reference == reference
    planned = planner.first(facts, Settings(requirements=parse_requirements(["driver"]))).plan
    assert planned.state == "refused"
    main(["doctor", "--root", str(HOSTS / name / "root")])
    assert "gpusetup apply" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ubuntu24.04-rtx4090-open", "ubuntu24.04-h200x8-keep", CONTAINER])
def test_other_machines_are_told_to_apply(name):
    facts = machine(name)
    assert apply_refused(facts, matrix(), resolve) is None


def test_a_container_without_a_driver_is_sent_to_its_host():
    refusal = apply_refused(msgspec.structs.replace(machine(CONTAINER), driver=None), matrix(), resolve)
    assert refusal is not None
    assert "host that starts the container" in refusal.hint


def test_resolve_never_chooses_a_linux_driver_for_wsl(tmp_path, capsys):
    facts = _facts(tmp_path, WSL)
    assert main(["resolve", "torch", "--from", str(facts)]) == 5
    text = capsys.readouterr().out
    assert "this is WSL, which uses the driver of Windows" in text
    assert "hint: install or update NVIDIA's driver on Windows" in text
    assert main(["resolve", "torch", "--from", str(facts), "--driver", "580.178.04", "--format", "json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["classes"].values()
    assert told["stack"]["driver"]["version"] == "580.178.04"
    assert any("that of Windows" in warning for warning in told["warnings"])
    assert main(["resolve", "torch", "--from", str(facts), "--driver", "580.178.04"]) == 0
    assert "gpusetup apply" not in capsys.readouterr().out


@pytest.mark.parametrize("gpu", ["Jetson AGX Orin", "Jetson T5000", "Jetson T4000"])
def test_a_jetson_is_sent_to_jetpack(gpu, capsys):
    assert main(["resolve", "torch", "--gpu", gpu]) == 4
    said: Any = capsys.readouterr().err
    assert "its driver and CUDA come with JetPack" in said
    assert "sudo apt-get install nvidia-jetpack" in said
